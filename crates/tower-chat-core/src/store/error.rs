//! The errors of stores.

use super::{Capability, DescriptionTooLarge, Revision, SequencePosition};
use crate::{BoxError, ConversationKey, RunId, SharedError, format::FormatError};

/// An operation of a store failed.
///
/// Clones share the error of the backend, because one failure may be reported to several callers
/// that waited for the same operation.
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
    /// The conversation is not at the revision that a write expects, or has an open run that does
    /// not admit the write.
    #[error(transparent)]
    Conflict(#[from] Box<Conflict>),
    /// A tool call that a write claims was begun by another run, or no longer waits for approval.
    #[error(
        "call {} of message {} in conversation {key} was claimed by another run: load the \
         conversation again to read the result of the call",
        call.index, call.sequence
    )]
    Claimed {
        /// The conversation.
        key: ConversationKey,
        /// The call.
        call: SequencePosition,
    },
    /// A conversation cannot be copied, because a conversation with the target key exists.
    #[error(
        "conversation {key} exists already: choose another key, or delete that conversation first"
    )]
    Exists {
        /// The key.
        key: ConversationKey,
    },
    /// A conversation cannot be pruned, because one of its runs is in progress or open, or has
    /// unsaved writes in the outbox.
    #[error(
        "run {run} of conversation {key} is in progress, or was interrupted: wait until it ends, or \
         recover it"
    )]
    UnderWay {
        /// The conversation.
        key: ConversationKey,
        /// The run.
        run: RunId,
    },
    /// The conversation whose description should change does not exist.
    #[error("there is no conversation {key}")]
    NoConversation {
        /// The key.
        key: ConversationKey,
    },
    /// The description of a conversation does not have the version that its writer expected.
    #[error(
        "the description of conversation {key} was changed by another writer: expected version \
         {expected}, found {found}; read it again, and repeat the change"
    )]
    DescriptionChanged {
        /// The conversation.
        key: ConversationKey,
        /// The version that the writer expected.
        expected: u64,
        /// The current version of the description.
        found: u64,
    },
    /// A description would exceed its maximum size.
    #[error(transparent)]
    DescriptionTooLarge(#[from] DescriptionTooLarge),
    /// The store lacks a capability that the operation needs.
    #[error("the history store lacks the capability {capability}: use a store that has it")]
    MissingCapability {
        /// The capability.
        capability: Capability,
    },
    /// The store contains sealed data, and the change does not come from the wrapper that seals the
    /// data.
    #[error(
        "the history store contains sealed data, which only the store that seals it may change: \
         open the history store with its keys"
    )]
    Sealed,
    /// The store was closed and accepts no more writes.
    #[error("the history store is closed: open it again")]
    Closed,
    /// The store can be read but not written, for example because its file is on a read-only disk.
    #[error("the history store is read-only")]
    ReadOnly,
    /// The storage of the store, such as a disk, is full. No part of the operation is stored. The
    /// operation can be repeated when there is free space again.
    #[error(
        "the history store failed to {action}, because its storage is full: free space there, and try again"
    )]
    StorageFull {
        /// The operation that failed.
        action: &'static str,
        /// The backend's error.
        source: SharedError,
    },
    /// A stored message cannot be decoded.
    #[error("message {sequence} of conversation {key} cannot be read")]
    Undecodable {
        /// The conversation.
        key: ConversationKey,
        /// The message's sequence number, from 1.
        sequence: u64,
        /// The reason why the message cannot be decoded.
        source: FormatError,
    },
    /// A conversation cannot be read although the store can: the stored data of the conversation
    /// was tampered with, or the encryption key of the conversation was deleted. The conversation
    /// can be deleted.
    #[error("conversation {key} cannot be read")]
    Unreadable {
        /// The conversation.
        key: ConversationKey,
        /// The reason why the conversation cannot be read.
        source: SharedError,
    },
    /// The data of the store are damaged.
    #[error("the history store is damaged: {reason}")]
    Corrupt {
        /// A description of the damage.
        reason: String,
    },
    /// The backend reported an error.
    #[error("the history store failed to {action}")]
    Backend {
        /// The operation that failed.
        action: &'static str,
        /// Whether the operation may succeed if it is repeated.
        retryable: bool,
        /// The backend's error.
        source: SharedError,
    },
}

impl From<Capability> for StoreError {
    /// Creates the error for a capability that a store lacks.
    fn from(capability: Capability) -> Self {
        Self::MissingCapability { capability }
    }
}

impl StoreError {
    /// Creates an error of the backend.
    pub fn backend(action: &'static str, retryable: bool, source: impl Into<BoxError>) -> Self {
        Self::Backend { action, retryable, source: SharedError::new(source) }
    }

    /// Returns whether the same operation may succeed if it is repeated unchanged.
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
            | Self::MissingCapability { .. }
            | Self::Sealed
            | Self::Closed
            | Self::ReadOnly
            | Self::Undecodable { .. }
            | Self::Unreadable { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    /// Returns whether the cause of the error is stored data that cannot be read. Code that
    /// iterates over many conversations reports such an error for the conversation in question, and
    /// continues with the next conversation.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Undecodable { .. } | Self::Unreadable { .. } | Self::Corrupt { .. })
    }
}

/// Another writer has written to the conversation since it was loaded, or the conversation has an
/// open run that does not admit the write.
///
/// No part of the refused write is stored. To continue the conversation, load it again first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.describe())]
#[non_exhaustive]
pub struct Conflict {
    /// The conversation.
    pub key: ConversationKey,
    /// The revision that the write expected.
    pub expected: Revision,
    /// The revision of the conversation.
    pub found: Revision,
    /// The open run of the conversation, if there is one: while it is open, only that run can
    /// write. The open run may also be the run of the refused write, if another process has resumed
    /// that run.
    pub open_run: Option<RunId>,
}

impl Conflict {
    /// Creates a conflict between two revisions.
    pub fn new(key: ConversationKey, expected: Revision, found: Revision) -> Self {
        Self { key, expected, found, open_run: None }
    }

    /// Adds the open run that is the reason for the refusal.
    #[must_use]
    pub fn with_open_run(mut self, run: Option<RunId>) -> Self {
        self.open_run = run;
        self
    }

    fn describe(&self) -> String {
        let Self { key, expected, found, open_run } = self;
        match open_run {
            Some(run) => format!(
                "conversation {key} belongs to run {run}, which is open: wait until it ends, or recover it"
            ),
            None => format!(
                "conversation {key} was changed by another run: expected message {} to be its \
                 last, found {}; load it again",
                expected.sequence, found.sequence
            ),
        }
    }
}

/// The error of a submission: one of its writes failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("write {} of the submission failed", completed + 1)]
pub struct AppendError {
    /// The number of writes of the submission that are durable. The next write failed, and the
    /// later ones were not tried.
    pub completed: usize,
    /// The error of the write that failed.
    pub source: StoreError,
}
