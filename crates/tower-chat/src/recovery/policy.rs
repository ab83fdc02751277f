//! How journaled runs are written, and how they are taken up again.

use std::{fmt, sync::Arc, time::Duration, time::SystemTime};

use tower_chat_core::{ConversationKey, RunId};

use crate::ToolOutput;

/// The choices about journaled runs.
///
/// ```
/// use std::time::Duration;
/// use tower_chat::recovery::{JournalPolicy, OnOpenRun};
/// let policy = JournalPolicy::default().lease(Duration::from_secs(60)).on_open_run(OnOpenRun::Reject);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalPolicy {
    pub(crate) lease: Duration,
    pub(crate) on_open_run: OnOpenRun,
    pub(crate) unknown_calls: UnknownCalls,
}

impl JournalPolicy {
    /// For how long after its last sign of life other processes leave a run alone, 15 seconds by
    /// default. While it is under way it renews its lease by itself, three times in this time; a
    /// run that failed or was dropped gives it back at once. With [`Duration::ZERO`] there is no
    /// lease, for stores that one process at a time uses: an open run may be taken up right away.
    ///
    /// A run whose lease was taken over cannot write, however long it sleeps; the lease only says
    /// when that is polite. It is compared with the clock of the process that asks.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
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
    pub fn unknown_calls(mut self, unknown_calls: UnknownCalls) -> Self {
        self.unknown_calls = unknown_calls;
        self
    }
}

impl Default for JournalPolicy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            on_open_run: OnOpenRun::default(),
            unknown_calls: UnknownCalls::default(),
        }
    }
}

/// What a new run does with an open run on its conversation that nobody works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOpenRun {
    /// Resumes it to its end first, with the new request's options, then begins.
    #[default]
    Recover,
    /// Commits what is there, repaired so that it is valid, then begins.
    Commit,
    /// Discards it, then begins.
    Discard,
    /// Fails with [`PersistenceError::OpenRun`](crate::PersistenceError::OpenRun).
    Reject,
}

/// What becomes of a call that was started and has no outcome, when its run is resumed.
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
