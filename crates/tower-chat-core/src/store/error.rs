//! What can go wrong in a store.

use super::{DescriptionTooLarge, Revision, SequencePosition};
use crate::{BoxError, ConversationKey, RunId, SharedError, format::FormatError};

/// A store could not do what it was asked.
///
/// Clones share what the backend reported: one failure may be told to all who waited for the same.
///
/// ```
/// use tower_chat_core::store::StoreError;
///
/// fn advice(error: &StoreError) -> &'static str {
///     match error {
///         StoreError::Conflict(_) => "load the conversation again: another run has changed it",
///         StoreError::StorageFull { .. } => "make room on the disk",
///         other if other.is_retryable() => "try again",
///         _ => "look at the store",
///     }
/// }
/// let away = StoreError::backend("write the messages", true, "connection reset");
/// assert_eq!(advice(&away), "try again");
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The conversation is not at the revision that a write expects.
    #[error(transparent)]
    Conflict(#[from] Box<Conflict>),
    /// A tool call that a write claims was begun by somebody else, or waits for nobody any more.
    #[error(
        "call {} of message {} in conversation {key} was claimed by another run",
        call.index, call.sequence
    )]
    Claimed {
        /// The conversation.
        key: ConversationKey,
        /// The call.
        call: SequencePosition,
    },
    /// A conversation cannot be copied to a key under which there is one.
    #[error("there is a conversation {key} already")]
    Exists {
        /// The key.
        key: ConversationKey,
    },
    /// A conversation on which a run is under way cannot be pruned.
    #[error(
        "run {run} is under way on conversation {key}, or was left open there: wait for its end, \
         or recover it"
    )]
    UnderWay {
        /// The conversation.
        key: ConversationKey,
        /// The run.
        run: RunId,
    },
    /// There is no such conversation to describe.
    #[error("there is no conversation {key}")]
    NoConversation {
        /// The key.
        key: ConversationKey,
    },
    /// The description of a conversation has another version than its writer expected.
    #[error(
        "the description of conversation {key} was changed meanwhile: expected version {expected}, \
         found {found}"
    )]
    DescriptionChanged {
        /// The conversation.
        key: ConversationKey,
        /// The version that was expected.
        expected: u64,
        /// The version that it has.
        found: u64,
    },
    /// A description would be larger than one may be.
    #[error(transparent)]
    DescriptionTooLarge(#[from] DescriptionTooLarge),
    /// The store cannot do this.
    #[error("the history store does not support the operation {operation}")]
    Unsupported {
        /// The method.
        operation: &'static str,
    },
    /// The store holds sealed data, and the change does not come from the wrapper that seals them.
    #[error(
        "the history store holds sealed data, and only the wrapper that seals them may change it: \
         open the store with its keys"
    )]
    Sealed,
    /// The store was closed and takes no more writes.
    #[error("the history store is closed and takes no more writes")]
    Closed,
    /// The store can be read but not written, such as a file on a read-only disk.
    #[error("the history store is read-only")]
    ReadOnly,
    /// There is no room where the store keeps its data, such as on a full disk. Nothing of what was
    /// being done is stored; it can be done when there is room again.
    #[error("the history store has no room to {action}: make room where it keeps its data")]
    StorageFull {
        /// What was being done.
        action: &'static str,
        /// The backend's error.
        source: SharedError,
    },
    /// A stored message cannot be decoded.
    #[error("message {sequence} of conversation {key} cannot be read")]
    Undecodable {
        /// The conversation.
        key: ConversationKey,
        /// The message's number in it, from 1.
        sequence: u64,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A conversation cannot be read, although its store can be: it was changed, or the key with which it
    /// was encrypted is gone. It can be deleted.
    #[error("conversation {key} cannot be read")]
    Unreadable {
        /// The conversation.
        key: ConversationKey,
        /// Why it cannot be read.
        source: SharedError,
    },
    /// The store's data are damaged.
    #[error("the history store is damaged: {reason}")]
    Corrupt {
        /// What was found.
        reason: String,
    },
    /// Anything the backend reports.
    #[error("the history store failed to {action}")]
    Backend {
        /// What was being done.
        action: &'static str,
        /// The same may succeed when it is tried again.
        retryable: bool,
        /// The backend's error.
        source: SharedError,
    },
}

impl StoreError {
    /// An error of the backend.
    pub fn backend(action: &'static str, retryable: bool, source: impl Into<BoxError>) -> Self {
        Self::Backend { action, retryable, source: SharedError::new(source) }
    }

    /// Whether the same operation may succeed when it is tried again unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Backend { retryable, .. } => *retryable,
            Self::StorageFull { .. } => true,
            Self::Conflict(_)
            | Self::Claimed { .. }
            | Self::Exists { .. }
            | Self::UnderWay { .. }
            | Self::NoConversation { .. }
            | Self::DescriptionChanged { .. }
            | Self::DescriptionTooLarge(_)
            | Self::Unsupported { .. }
            | Self::Sealed
            | Self::Closed
            | Self::ReadOnly
            | Self::Undecodable { .. }
            | Self::Unreadable { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    /// Whether something that is stored cannot be read. What goes through many conversations reports it
    /// for one of them, and goes on with the others.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Undecodable { .. } | Self::Unreadable { .. } | Self::Corrupt { .. })
    }
}

/// Somebody else has written to the conversation since it was loaded.
///
/// Nothing of the refused write is stored. Load the conversation again before going on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.describe())]
#[non_exhaustive]
pub struct Conflict {
    /// The conversation.
    pub key: ConversationKey,
    /// The revision the write expected.
    pub expected: Revision,
    /// The revision the conversation has.
    pub found: Revision,
    /// The open run that owns the end of the conversation, if there is one. It may be the writer's
    /// own, taken up by somebody else since.
    pub open_run: Option<RunId>,
}

impl Conflict {
    /// A conflict between two revisions.
    pub fn new(key: ConversationKey, expected: Revision, found: Revision) -> Self {
        Self { key, expected, found, open_run: None }
    }

    /// Adds the open run that is in the way.
    #[must_use]
    pub fn with_open_run(mut self, run: Option<RunId>) -> Self {
        self.open_run = run;
        self
    }

    fn describe(&self) -> String {
        let Self { key, expected, found, open_run } = self;
        match open_run {
            Some(run) => format!("conversation {key} belongs to run {run}, which is open"),
            None => format!(
                "conversation {key} was changed by another run: expected message {} to be its \
                 last, found {}",
                expected.sequence, found.sequence
            ),
        }
    }
}

/// A submission stopped at a write that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("write {} of the submission failed", completed + 1)]
pub struct AppendError {
    /// How many writes of the submission are durable; the next one failed, and those after it
    /// were not tried.
    pub completed: usize,
    /// Why it failed.
    pub source: StoreError,
}
