//! How journaled runs are written, and how they are taken up again.

use std::{fmt, sync::Arc, time::Duration, time::SystemTime};

use tower_chat_core::{ConversationKey, RunId};

use crate::ToolOutput;

/// The choices about journaled runs.
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
    /// For how long after its last sign of life other processes leave a run alone, 15 seconds by
    /// default. While it is under way it renews its lease by itself, three times in this time; a
    /// run that failed or was dropped gives it back at once. With [`Duration::ZERO`] there is no
    /// lease: an open run may be taken up right away. A store that one process at a time uses says
    /// so itself, when it is opened, and no run in it takes a lease then
    /// ([`StoreHandle::exclusive`](tower_chat_core::store::StoreHandle::exclusive)).
    ///
    /// In the other modes a run holds the approved calls whose tools it runs for so long, and renews that in
    /// the same way.
    ///
    /// A run whose lease was taken over cannot write, however long it sleeps; the lease only says
    /// when that is polite. It is compared with the clock of the process that asks.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a run waits for the lease of another process to end, 60 seconds by default. It
    /// waits only where it was told to: under
    /// [`ConcurrentRuns::Queue`](crate::ConcurrentRuns::Queue), or by
    /// [`RecoveryPolicy::with_max_wait`](crate::recovery::RecoveryPolicy::with_max_wait), which has its own limit. Past the
    /// limit it fails with [`PersistenceError::RunHeld`](crate::PersistenceError::RunHeld).
    ///
    /// The wait is counted by tokio's clock; whether the lease has ended, by the layer's
    /// [`Clock`](crate::Clock).
    #[must_use]
    pub fn with_max_lease_wait(mut self, most: Duration) -> Self {
        self.lease_wait = most;
        self
    }

    /// What becomes of a run whose caller disconnects before its end.
    #[must_use]
    pub fn on_disconnect(mut self, on_disconnect: OnDisconnect) -> Self {
        self.on_disconnect = on_disconnect;
        self
    }

    /// What becomes of a run that the service refuses for good.
    #[must_use]
    pub fn on_refusal(mut self, on_refusal: OnRefusal) -> Self {
        self.on_refusal = on_refusal;
        self
    }

    /// How often a run may fail with errors that do not say whether they are for good
    /// ([`is_retryable`](tower_chat_core::is_retryable) gives `None`) before the next of them counts
    /// as a refusal; 3 attempts by default, at least 1. Every attempt at the run counts, one that
    /// ended with its process too.
    #[must_use]
    pub fn with_max_unclear_attempts(mut self, attempts: u32) -> Self {
        self.max_unclear_attempts = attempts.max(1);
        self
    }

    /// What a new run does with an open one on its conversation.
    #[must_use]
    pub fn on_open_run(mut self, on_open_run: OnOpenRun) -> Self {
        self.on_open_run = on_open_run;
        self
    }

    /// What becomes of calls that may or may not have run, where their tool does not say that it
    /// is [safe to retry](tower_chat_core::ToolDefinition::safe_to_retry). A request extension of
    /// the same type chooses for one run.
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

/// What a new run does with an open run on its conversation that nobody works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOpenRun {
    /// Resumes it to its end first, with the new request's options, then begins; what that came
    /// to is in [`Finish::recovered`](crate::Finish::recovered). A run whose caller has
    /// disconnected is not resumed, because that caller no longer waits for its answer: it is
    /// committed as it is, as by [`Commit`](Self::Commit), and no service call is made for it.
    #[default]
    Recover,
    /// Commits what is there, repaired so that it is valid, then begins.
    Commit,
    /// Discards it, then begins.
    Discard,
    /// Fails with [`PersistenceError::OpenRun`](crate::PersistenceError::OpenRun).
    Reject,
}

/// What becomes of a journaled run whose caller disconnects before its end: the response or the
/// future of the call is dropped, the task is aborted, or a timeout above the layers fires.
///
/// The process that has the run carries this out, so it does not hold for a run whose process died:
/// such a run stays open, and [`OnOpenRun`] says what becomes of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// It stays open, with a mark that its caller is gone. The same request sent again and
    /// [`recover`](crate::recovery::recover) go on with it. A new request commits it as it is before it
    /// begins, under [`OnOpenRun::Recover`] too, and pays nothing for it.
    #[default]
    LeaveOpen,
    /// It is committed as it is, with a result for every call that has none.
    Commit,
    /// It is discarded.
    Discard,
}

/// What becomes of a journaled run that fails for good: its service, or a layer below, reports an
/// error of which [`is_retryable`](tower_chat_core::is_retryable) says that the same request would
/// fail again, or which says nothing of itself for the
/// [last attempt](JournalPolicy::with_max_unclear_attempts).
///
/// It is decided when the run fails before the model has answered anything, and when a new request
/// fails to resume it. A run that fails later stays open: its own caller may know better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRefusal {
    /// It is committed as it is, its input too: the model knows what its tools have done, and a reader
    /// sees the question.
    #[default]
    Commit,
    /// A run that nothing was answered in is discarded, its input with it. One that has answers is
    /// committed as it is.
    KeepAnswers,
    /// It is discarded.
    Discard,
    /// It stays open, and every later request fails as it did, until somebody ends it.
    LeaveOpen,
}

/// How an open run ends if it is not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// What is staged becomes part of the history, with an answer to every call that has none: its
    /// recorded result, or that it may or may not have run, or that it was not run.
    Commit,
    /// Nothing of it is left, but for what the record says of calls that earlier runs had asked
    /// for and that were approved.
    Discard,
}

impl OnRefusal {
    /// How a run ends; `None` if it stays open.
    pub(crate) fn end(self, has_answers: bool) -> Option<RunEnd> {
        match (self, has_answers) {
            (Self::KeepAnswers, true) | (Self::Commit, _) => Some(RunEnd::Commit),
            (Self::KeepAnswers, false) | (Self::Discard, _) => Some(RunEnd::Discard),
            (Self::LeaveOpen, _) => None,
        }
    }
}

/// What becomes of a call that was started and has no outcome, when its run is resumed.
///
/// ```
/// use tower_chat::{ToolOutput, recovery::{JournalPolicy, UnknownAnswer, UnknownCalls}};
///
/// // What a payment service says of a payment with this key.
/// fn receipt(idempotency_key: &str) -> Option<String> {
///     # let _ = idempotency_key;
///     Some("990 cents are paid".to_owned())
/// }
///
/// let policy = JournalPolicy::default().with_unknown_calls(UnknownCalls::ask(|call| {
///     match receipt(&call.idempotency_key) {
///         _ if call.tool != "pay" => UnknownAnswer::Unknown, // the model is told that nobody knows
///         Some(text) => UnknownAnswer::Output(Box::new(ToolOutput::from(text))),
///         None => UnknownAnswer::RunAgain,
///     }
/// }));
/// # let _ = policy;
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum UnknownCalls {
    /// The model is told that the call may or may not have taken effect.
    #[default]
    Answer,
    /// The run fails with [`ToolLoopError::UnknownCalls`](crate::ToolLoopError::UnknownCalls), and
    /// stays open.
    Fail,
    /// Somebody is asked, once a call.
    Ask(Arc<dyn Fn(&UnknownCall) -> UnknownAnswer + Send + Sync>),
}

impl UnknownCalls {
    /// Asks a function.
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

/// A call that was started and has no outcome: it may or may not have run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownCall {
    /// The conversation.
    pub key: ConversationKey,
    /// The run.
    pub run: RunId,
    /// The tool.
    pub tool: String,
    /// The id by which the model knows the call.
    pub call_id: String,
    /// The arguments' text, as it is stored.
    pub arguments: String,
    /// What the tool was given to know a repetition by.
    pub idempotency_key: String,
    /// When it was started.
    pub started_at: Option<SystemTime>,
}

/// What somebody knows of an [`UnknownCall`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum UnknownAnswer {
    /// It is to run again. If its arguments were not kept, the model is told that it may or may
    /// not have run.
    RunAgain,
    /// Nothing: the model is told so.
    Unknown,
    /// It has run, and this came out.
    Output(Box<ToolOutput>),
    /// The run cannot go on; it stays open.
    Fail,
}
