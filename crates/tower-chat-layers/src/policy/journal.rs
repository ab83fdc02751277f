//! The policies for writing and resuming journaled runs.

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
///     .on_disconnect(OnDisconnect::Commit) // at once, instead of before the next request
///     .on_refusal(OnRefusal::Discard)
///     .on_open_run(OnOpenRun::Reject); // a person decides, with `recover`
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
    /// Sets the duration of a run's lease after its last renewal, 15 seconds by default. An active run
    /// renews its lease automatically, three times in this period. A run that failed or was dropped
    /// returns it immediately. With [`Duration::ZERO`] there is no lease, and an open run may be taken
    /// over immediately. A store that only one process at a time can use declares this when it is opened,
    /// and its runs take no lease
    /// ([`StoreHandle::exclusive`](tower_chat_core::store::StoreHandle::exclusive)).
    ///
    /// In the other modes, the claims of a run on approved calls last for the same time, and are
    /// renewed in the same way.
    ///
    /// A run whose lease was taken over can never write again. The lease only defines from when another
    /// process may take the run over. That process compares the end of the lease with its own clock.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the maximum time for which a run waits for the end of another process's lease, 60 seconds by
    /// default. A run only waits under [`ConcurrentRuns::Queue`](crate::ConcurrentRuns::Queue), or with
    /// [`RecoveryPolicy::with_max_wait`](crate::recovery::RecoveryPolicy::with_max_wait), which has its
    /// own limit. After the limit the run fails with
    /// [`PersistenceError::RunHeld`](crate::PersistenceError::RunHeld).
    ///
    /// The wait is measured with tokio's clock, and the end of the lease with the layer's
    /// [`Clock`](crate::Clock).
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

    /// Sets the number of times that a run may fail with errors of unknown retryability
    /// ([`is_retryable`](tower_chat_core::is_retryable) returns `None`) before the next such error counts
    /// as a refusal. The default is 3 attempts, the minimum 1. Every attempt at the run counts, including
    /// attempts that ended with their process.
    #[must_use]
    pub fn with_max_unclear_attempts(mut self, attempts: u32) -> Self {
        self.max_unclear_attempts = attempts.max(1);
        self
    }

    /// Sets the policy for an open run of the conversation when a new run begins.
    #[must_use]
    pub fn on_open_run(mut self, on_open_run: OnOpenRun) -> Self {
        self.on_open_run = on_open_run;
        self
    }

    /// Sets the policy for calls that may or may not have run, unless their tool is declared [safe to
    /// retry](tower_chat_core::ToolDefinition::safe_to_retry). A request extension of the same type
    /// overrides the setting for one run.
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

/// The policy for an open run of the conversation when a new run begins, if no process works on the open
/// run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOpenRun {
    /// Resumes the open run to its end first, with the new request's options, and then begins.
    /// [`Finish::recovered`](crate::Finish::recovered) contains the answer of the open run. If the
    /// caller of the open run has disconnected, it no longer waits for the answer. Such a run is
    /// committed in its current state, as by [`Commit`](Self::Commit), without a service call.
    #[default]
    Recover,
    /// Commits the open run in its current state, repaired to be valid, and then begins.
    Commit,
    /// Discards the open run, and then begins.
    Discard,
    /// Fails with [`PersistenceError::OpenRun`](crate::PersistenceError::OpenRun).
    Reject,
}

/// The policy for a journaled run whose caller disconnects before the end of the run. A caller
/// disconnects if the response or the future of the call is dropped, the task is aborted, or a timeout
/// above the layers fires.
///
/// The process of the run applies this policy. A run whose process died remains open, and [`OnOpenRun`]
/// applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// The run remains open, with a mark that its caller has disconnected. The same request sent again
    /// and [`recover`](crate::recovery::recover) continue it. A new request commits it in its current
    /// state before it begins, also under [`OnOpenRun::Recover`], without a paid service call.
    #[default]
    LeaveOpen,
    /// The run is committed in its current state, with a result for every call without one.
    Commit,
    /// The run is discarded.
    Discard,
}

/// The policy for a journaled run after a permanent failure. A failure of the service, or of a layer
/// below, is permanent if [`is_retryable`](tower_chat_core::is_retryable) returns `Some(false)` for its
/// error. An error of unknown retryability is permanent at the [final
/// attempt](JournalPolicy::with_max_unclear_attempts).
///
/// The policy applies when the run fails before any answer of the model, and when a new request fails
/// to resume it. A run that fails later remains open, and its own caller can decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRefusal {
    /// The run is committed in its current state, including its input. The model then knows the effects
    /// of its tools, and a reader sees the question.
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

/// The end of an open run that is not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// The staged messages become part of the history, with a result for every call without one: its
    /// recorded result, or an error that the call may or may not have run, or that it was not run.
    Commit,
    /// Everything of the run is removed, except the record of approved calls of earlier runs.
    Discard,
}

impl OnRefusal {
    /// Returns the end of a run, or `None` if the run remains open.
    pub(crate) fn end(self, has_answers: bool) -> Option<RunEnd> {
        match (self, has_answers) {
            (Self::KeepAnswers, true) | (Self::Commit, _) => Some(RunEnd::Commit),
            (Self::KeepAnswers, false) | (Self::Discard, _) => Some(RunEnd::Discard),
            (Self::LeaveOpen, _) => None,
        }
    }
}

/// The policy for a call that was started and has no outcome, when its run is resumed.
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
///         _ if call.tool != "pay" => UnknownAnswer::Unknown, // the result says that it is unknown
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
    /// The run fails with [`ToolLoopError::UnknownCalls`](crate::ToolLoopError::UnknownCalls), and
    /// remains open.
    Fail,
    /// A function decides, once for each call.
    Ask(Arc<dyn Fn(&UnknownCall) -> UnknownAnswer + Send + Sync>),
}

impl UnknownCalls {
    /// Creates a policy that calls a function.
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

/// A call that was started and has no outcome. The call may or may not have run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownCall {
    /// The conversation.
    pub key: ConversationKey,
    /// The run.
    pub run: RunId,
    /// The name of the tool.
    pub tool: String,
    /// The id of the call, as the model knows it.
    pub call_id: String,
    /// The text of the stored arguments.
    pub arguments: String,
    /// The key by which the tool can recognise a repetition of the call.
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
    /// The outcome is unknown. The model receives an error result that reports this.
    Unknown,
    /// The call has run, with this output.
    Output(Box<ToolOutput>),
    /// The run fails, and remains open.
    Fail,
}
