//! The policies for writing and resuming journaled runs. A journaled run stores its messages while
//! it is active, and is an open run until it is committed or discarded. An attempt is one execution
//! of a run: if the same request is sent again, another attempt continues the run.

use std::{fmt, sync::Arc, time::Duration, time::SystemTime};

use tower_chat_core::{ConversationKey, RunId};

use crate::ToolOutput;

/// The policy for journaled runs.
///
/// ```
/// use std::time::Duration;
/// use tower_chat::recovery::{JournalPolicy, OnDisconnect, OnOpenRun, OnRefusal};
/// let policy = JournalPolicy::default()
///     .with_lease(Duration::from_secs(60))
///     .on_disconnect(OnDisconnect::Commit) // in this process, when the caller disconnects
///     .on_refusal(OnRefusal::Discard)
///     .on_open_run(OnOpenRun::Reject); // an operator calls `recover`
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalPolicy {
    pub(crate) lease: Duration,
    pub(crate) lease_wait: Duration,
    pub(crate) on_open_run: OnOpenRun,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) on_refusal: OnRefusal,
    pub(crate) max_unclear_attempts: u32,
    pub(crate) unknown_calls: UnknownCalls,
}

impl JournalPolicy {
    /// Sets how long a run's lease lasts after its last renewal, 15 seconds by default. A lease is
    /// the time until which no other process may take over the run. An active run renews its lease
    /// automatically, three times in this period. A run that failed or was dropped releases its
    /// lease immediately. With [`Duration::ZERO`], runs have no lease, and another process can take
    /// over an open run immediately. Runs also have no lease if the store is
    /// [exclusive](tower_chat_core::store::StoreHandle::exclusive), because only one process at a
    /// time can open such a store.
    ///
    /// A run that is not journaled has no lease. Before a run without a lease executes an approved
    /// call, the run stores a claim on the call, which prevents other runs from executing the call.
    /// The claim has the duration of a lease, and is renewed like a lease.
    ///
    /// After the end of the lease, another process may take over the run. That process compares the
    /// end of the lease with its own clock. Different clocks cannot damage the run, because the
    /// store refuses every write of the former owner after a takeover.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the maximum time for which a run waits for the end of another process's lease, 60
    /// seconds by default. The limit applies under
    /// [`ConcurrentRuns::Queue`](crate::ConcurrentRuns::Queue). Under other settings, a run does
    /// not wait for a lease. When this time has passed, the run fails with
    /// [`PersistenceError::RunHeld`](crate::PersistenceError::RunHeld). Recovery has a separate
    /// limit, [`RecoveryPolicy::with_max_wait`](crate::recovery::RecoveryPolicy::with_max_wait).
    ///
    /// The layer measures the wait with tokio's clock, and compares the end of the lease with the
    /// layer's [`Clock`](crate::Clock).
    #[must_use]
    pub fn with_max_lease_wait(mut self, max: Duration) -> Self {
        self.lease_wait = max;
        self
    }

    /// Sets the policy for a run whose caller disconnects before the end of the run.
    #[must_use]
    pub fn on_disconnect(mut self, on_disconnect: OnDisconnect) -> Self {
        self.on_disconnect = on_disconnect;
        self
    }

    /// Sets the policy for a run after a permanent failure.
    #[must_use]
    pub fn on_refusal(mut self, on_refusal: OnRefusal) -> Self {
        self.on_refusal = on_refusal;
        self
    }

    /// Sets the attempt from which on an error counts as a permanent failure if it is unknown
    /// whether a repetition may succeed ([`is_retryable`](tower_chat_core::is_retryable) returns
    /// `None`). The default is 3: such an error is not permanent in the first two attempts of a
    /// run. The minimum is 1. All earlier attempts of the run are counted, whatever has ended them.
    #[must_use]
    pub fn with_max_unclear_attempts(mut self, attempts: u32) -> Self {
        self.max_unclear_attempts = attempts.max(1);
        self
    }

    /// Sets the policy for a new run in a conversation that contains an open run.
    #[must_use]
    pub fn on_open_run(mut self, on_open_run: OnOpenRun) -> Self {
        self.on_open_run = on_open_run;
        self
    }

    /// Sets the policy for calls that may or may not have run. The policy does not apply to calls
    /// of tools that are declared [safe to retry](tower_chat_core::ToolDefinition::safe_to_retry).
    /// A request extension of the type [`UnknownCalls`] overrides the policy for one run.
    #[must_use]
    pub fn with_unknown_calls(mut self, unknown_calls: UnknownCalls) -> Self {
        self.unknown_calls = unknown_calls;
        self
    }
}

impl Default for JournalPolicy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            lease_wait: Duration::from_secs(60),
            on_open_run: OnOpenRun::default(),
            on_disconnect: OnDisconnect::default(),
            on_refusal: OnRefusal::default(),
            max_unclear_attempts: 3,
            unknown_calls: UnknownCalls::default(),
        }
    }
}

/// The policy for a new run in a conversation that contains an open run. The policy applies if no
/// process executes the open run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOpenRun {
    /// Resumes the open run with the new request's options, and completes it before the new run
    /// begins. [`Finish::recovered`](crate::Finish::recovered) of the new run contains the answer
    /// of the open run.
    ///
    /// If a mark shows that the caller of the open run has disconnected, no caller waits for the
    /// answer. The open run is then committed in its current state without a service call, as by
    /// [`Commit`](Self::Commit).
    #[default]
    Recover,
    /// Commits the open run in its current state before the new run begins. A call without a result
    /// gets a result, so that the history is valid.
    Commit,
    /// Discards the open run before the new run begins.
    Discard,
    /// The new run fails with [`PersistenceError::OpenRun`](crate::PersistenceError::OpenRun), and the open
    /// run remains open.
    Reject,
}

/// The policy for a journaled run whose caller disconnects before the end of the run. A caller
/// disconnects by dropping the future of the call or the response, for example when a task is
/// aborted or when a timeout above the layers expires.
///
/// The process that executes the run applies this policy. If the process dies, the run remains
/// open, and the next run applies [`OnOpenRun`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// The run remains open, with a mark that its caller has disconnected. The run continues if the
    /// same request is sent again, or if [`recover`](crate::recovery::recover) is called. A
    /// different request in the conversation commits the open run in its current state before its
    /// own run begins. This also applies under [`OnOpenRun::Recover`], because no caller waits for
    /// the answer of a paid service call.
    #[default]
    LeaveOpen,
    /// The run is committed in its current state, with a result for every call without one.
    Commit,
    /// The run is discarded.
    Discard,
}

/// The policy for a journaled run after a permanent failure. A failure of the service, or of a
/// layer below, is permanent if [`is_retryable`](tower_chat_core::is_retryable) returns
/// `Some(false)` for its error. If it returns `None`,
/// [`with_max_unclear_attempts`](JournalPolicy::with_max_unclear_attempts) decides.
///
/// The policy applies in two cases: a run fails before the first answer of the model, or a new
/// request cannot resume an open run, which may contain answers. A run whose own request fails
/// after an answer remains open, and the caller of the request can resume or end the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRefusal {
    /// The run is committed in its current state, including its input. The history then contains
    /// the results of the tools that have run, and the question of the user.
    #[default]
    Commit,
    /// A run without an answer is discarded, including its input. A run with answers is committed in
    /// its current state.
    KeepAnswers,
    /// The run is discarded.
    Discard,
    /// The run remains open, and every later request fails in the same way until the application ends
    /// the run.
    LeaveOpen,
}

/// The way in which an open run ends if it is not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// The staged messages become part of the history. A call whose result is not among these messages gets
    /// the result from the record of tool calls. If the record contains no result either, the call gets an
    /// error result, which reports that the call may or may not have run, or that the call was not run.
    Commit,
    /// The store removes everything that the run has stored, except the record of each approved
    /// call whose approval request was stored by an earlier run.
    Discard,
}

impl OnRefusal {
    pub(crate) fn end(self, has_answers: bool) -> Option<RunEnd> {
        match (self, has_answers) {
            (Self::KeepAnswers, true) | (Self::Commit, _) => Some(RunEnd::Commit),
            (Self::KeepAnswers, false) | (Self::Discard, _) => Some(RunEnd::Discard),
            (Self::LeaveOpen, _) => None,
        }
    }
}

/// The policy for a call that an earlier attempt of the run started, and whose outcome was not
/// stored. The attempt that resumes the run applies the policy.
///
/// ```
/// use tower_chat::{recovery::{JournalPolicy, UnknownAnswer, UnknownCalls}, tool::ToolOutput};
///
/// // Returns the receipt of a payment service for a payment with this key.
/// fn receipt(idempotency_key: &str) -> Option<String> {
///     # let _ = idempotency_key;
///     Some("990 cents are paid".to_owned())
/// }
///
/// let policy = JournalPolicy::default().with_unknown_calls(UnknownCalls::ask(|call| {
///     match receipt(&call.idempotency_key) {
///         _ if call.tool != "pay" => UnknownAnswer::Unknown, // the model receives an error result
///         Some(text) => UnknownAnswer::Output(Box::new(ToolOutput::from(text))),
///         None => UnknownAnswer::RunAgain,
///     }
/// }));
/// # let _ = policy;
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum UnknownCalls {
    /// The model receives an error result that reports that the call may or may not have taken effect.
    #[default]
    Answer,
    /// The attempt fails with [`ToolLoopError::UnknownCalls`](crate::ToolLoopError::UnknownCalls),
    /// and the run remains open.
    Fail,
    /// The function decides. The layer calls the function once for each such call.
    Ask(Arc<dyn Fn(&UnknownCall) -> UnknownAnswer + Send + Sync>),
}

impl UnknownCalls {
    /// Creates the policy [`Ask`](Self::Ask) with a function.
    pub fn ask(ask: impl Fn(&UnknownCall) -> UnknownAnswer + Send + Sync + 'static) -> Self {
        Self::Ask(Arc::new(ask))
    }
}

impl fmt::Debug for UnknownCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer => "Answer",
            Self::Fail => "Fail",
            Self::Ask(_) => "Ask",
        })
    }
}

/// A call that was started, but whose outcome was not stored. The call may or may not have run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownCall {
    /// The conversation.
    pub key: ConversationKey,
    /// The run.
    pub run: RunId,
    /// The name of the tool.
    pub tool: String,
    /// The id of the call in the messages that the model receives.
    pub call_id: String,
    /// The text of the stored arguments.
    pub arguments: String,
    /// The idempotency key of the call. The tool receives the same key when the call is repeated.
    pub idempotency_key: String,
    /// The time at which the call was started.
    pub started_at: Option<SystemTime>,
}

/// The application's decision about an [`UnknownCall`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum UnknownAnswer {
    /// The call runs again. If its arguments were not stored, the model receives an error result that
    /// reports that the call may or may not have run.
    RunAgain,
    /// The outcome is unknown. The model receives an error result, which reports that the call may
    /// or may not have run.
    Unknown,
    /// The call has run, and returned this output.
    Output(Box<ToolOutput>),
    /// The attempt fails, and the run remains open.
    Fail,
}
