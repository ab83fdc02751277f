//! The trait of update logs, and its types.

mod error;
mod memory;
mod options;
mod position;
pub(crate) mod record;
pub(crate) mod server;
mod shared;
pub(crate) mod wakeups;

use std::{fmt, sync::Arc, time::Duration, time::SystemTime};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tower_chat_layers::{Conversation, ConversationKey, RunId};

pub use self::{
    error::UpdateLogError,
    memory::MemoryUpdateLog,
    options::UpdateLogOptions,
    position::{ParsePositionError, UpdatePosition},
};

/// A log of the updates that runs have sent to their readers, for readers that reconnect.
///
/// An update log is not a history: its updates expire. The log contains the updates of all attempts
/// at a run. An *attempt* is one execution of the run. One process owns the attempt: this process
/// writes the updates, and renews the *lease* of the attempt, which is a time limit. If the process
/// dies, the lease expires, and another process may begin the next attempt.
///
/// The documentation of the [crate](crate) has an example. `update_log_contract!` of the feature
/// `contract` tests an implementation.
#[async_trait]
pub trait UpdateLog: Send + Sync + 'static {
    /// Begins an attempt at a run, with a lease of the given duration. A stop that was requested
    /// for an earlier attempt does not apply to this attempt. This method may also erase runs that
    /// have expired.
    ///
    /// # Errors
    ///
    /// [`NotOwner`](UpdateLogError::NotOwner) if this attempt or a later one has begun;
    /// [`LimitExceeded`](UpdateLogError::LimitExceeded) if the log contains too many runs.
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError>;

    /// Appends updates and, if `end` is set, closes the run. `first` is the position of the first
    /// update, and contains the number of the attempt. The log stores all updates and the end, or
    /// stores nothing.
    ///
    /// The log skips updates that are already stored. Therefore the caller can repeat an append
    /// whose outcome is unknown. If the attempt is already closed, the log does not change its end.
    ///
    /// # Errors
    ///
    /// [`NotOwner`](UpdateLogError::NotOwner), [`Gap`](UpdateLogError::Gap) or
    /// [`LimitExceeded`](UpdateLogError::LimitExceeded).
    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError>;

    /// Renews the lease of an attempt, and returns whether a stop was requested.
    ///
    /// # Errors
    ///
    /// [`NotOwner`](UpdateLogError::NotOwner).
    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError>;

    /// Reads the state of a run, and at most `limit` updates after a position, in order. The update
    /// at the position itself is not returned. If a read with a `limit` above 0 returns no updates,
    /// the log contained no update after the position when the state was read.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be read.
    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError>;

    /// Waits until the run may have an update after a position or another state, or until `timeout`
    /// has passed. A reader calls [`read`](Self::read) after every wait, because a wait may also
    /// end without a change.
    ///
    /// The default implementation waits for at most 250 ms.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be read.
    async fn wait(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        timeout: Duration,
    ) -> Result<(), UpdateLogError> {
        let _ = (run, after);
        tokio::time::sleep(timeout.min(Duration::from_millis(250))).await;
        Ok(())
    }

    /// If the lease of a run has expired, closes the run as [`RunEnd::Interrupted`]. Has no effect
    /// while the lease is valid, and after the end of the run. Returns the state of the run. Any
    /// process may call this method.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written.
    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError>;

    /// Records a request to stop a run, and returns the state of the run. The owner receives the
    /// request with its next [`renew`](Self::renew). A repeated request, and a request to stop a
    /// run that has ended, have no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written.
    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError>;

    /// Erases runs with their updates, and returns the number of erased runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written.
    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError>;
}

/// The key of a run in an update log: its conversation and its id.
///
/// ```
/// use tower_chat_delivery::RunKey;
/// use tower_chat_layers::{ChatRequest, ConversationKey};
/// let request = ChatRequest::user("Hello.").in_conversation(ConversationKey::new("alice", "c"));
/// let run = request.conversation().map(RunKey::from).unwrap();
/// assert_eq!(run.conversation.scope(), "alice");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// The conversation of the request that has begun the run.
    pub conversation: ConversationKey,
    /// The id of the run.
    pub run: RunId,
}

impl RunKey {
    /// Creates the key of a run.
    pub fn new(conversation: ConversationKey, run: RunId) -> Self {
        Self { conversation, run }
    }
}

impl From<&Conversation> for RunKey {
    fn from(conversation: &Conversation) -> Self {
        Self::new(conversation.key.clone(), conversation.run)
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of conversation {}", self.run, self.conversation)
    }
}

/// The stored form of one update. An update log does not interpret this text.
///
/// ```
/// use tower_chat_delivery::StoredUpdate;
/// assert_eq!(StoredUpdate::new(r#"{"text":"Take "}"#).data(), r#"{"text":"Take "}"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredUpdate(Arc<str>);

impl StoredUpdate {
    /// Creates an update from its stored form.
    pub fn new(data: impl Into<Arc<str>>) -> Self {
        Self(data.into())
    }

    /// Returns the stored form.
    pub fn data(&self) -> &str {
        &self.0
    }
}

/// An update with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedUpdate {
    /// The position.
    pub position: UpdatePosition,
    /// The update.
    pub update: StoredUpdate,
}

/// The updates that a read returns, and the state of the run.
///
/// ```
/// use tower_chat_delivery::{RunState, UpdatePage};
/// let page = UpdatePage::new(Vec::new(), RunState::Unknown);
/// assert!(page.updates.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdatePage {
    /// The updates, in order.
    pub updates: Vec<PositionedUpdate>,
    /// The state of the run when the updates were read.
    pub state: RunState,
}

impl UpdatePage {
    /// Creates a page.
    pub fn new(updates: Vec<PositionedUpdate>, state: RunState) -> Self {
        Self { updates, state }
    }
}

/// The state of a run in an update log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunState {
    /// The log does not contain the run: the run never began, or its updates were erased or have
    /// expired.
    Unknown,
    /// A process executes the run.
    Open {
        /// The number of the attempt.
        attempt: u32,
        /// Whether a stop was requested.
        stop_requested: bool,
    },
    /// The lease of the run has expired, because the process of the run died or cannot reach the
    /// log.
    LeaseExpired {
        /// The number of the attempt.
        attempt: u32,
    },
    /// The run has ended.
    Closed {
        /// The number of the last attempt.
        attempt: u32,
        /// The end of the run.
        end: RunEnd,
    },
}

impl RunState {
    /// Returns the number of the last attempt; 0 if the log does not contain the run.
    ///
    /// ```
    /// use tower_chat_delivery::RunState;
    /// assert_eq!(RunState::Unknown.attempt(), 0);
    /// assert_eq!(RunState::LeaseExpired { attempt: 2 }.attempt(), 2);
    /// ```
    pub fn attempt(&self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Open { attempt, .. }
            | Self::LeaseExpired { attempt }
            | Self::Closed { attempt, .. } => *attempt,
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the log does not contain the run"),
            Self::Open { attempt, .. } => write!(f, "attempt {attempt} is in progress"),
            Self::LeaseExpired { attempt } => {
                write!(f, "the lease of attempt {attempt} has expired")
            }
            Self::Closed { attempt, .. } => write!(f, "attempt {attempt} has ended"),
        }
    }
}

/// The end of a run, as its readers receive it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEnd {
    /// The response of the run is complete.
    Completed,
    /// The response ended with an error.
    Failed {
        /// The message of the error, for developers.
        message: String,
    },
    /// The lease of the last attempt expired before the end of the attempt, because its process
    /// died or could not reach the log. The history contains the messages that were already
    /// durable. Another attempt may continue the run.
    Interrupted,
    /// The response of the run is complete, but the log has refused its last updates, for example
    /// because of a limit. The history contains the messages.
    Truncated,
}

/// The result of [`UpdateLog::renew`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Whether a stop of the run was requested.
    pub stop_requested: bool,
}

/// The runs that [`UpdateLog::erase`] erases.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_delivery::{Erase, MemoryUpdateLog, UpdateLog};
/// let log = MemoryUpdateLog::new();
/// assert_eq!(log.erase(Erase::Scope("alice")).await?, 0);
/// # Ok::<(), tower_chat_delivery::UpdateLogError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Erase<'a> {
    /// All runs of a conversation.
    Conversation(&'a ConversationKey),
    /// All runs of a scope.
    Scope(&'a str),
    /// The runs that ended at the given time or before. A run that was not closed ends when its
    /// lease expires.
    EndedBy(SystemTime),
}
