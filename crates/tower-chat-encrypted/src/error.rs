//! The errors of encryption.

use std::error::Error;

use tower_chat_core::{ConversationKey, SharedError, store::StoreError};

use crate::KeyError;

/// A value cannot be sealed (encrypted and authenticated) or opened (verified and decrypted). This
/// error is the source of a [`StoreError::Unreadable`] or a [`StoreError::Backend`];
/// [`in_store_error`](Self::in_store_error) finds this error in a store's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionError {
    /// The key is not available.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value cannot be authenticated for this position.
    #[error(
        "{column} of message {sequence} in conversation {key} cannot be decrypted: it was changed, or moved from \
         another row: restore it from a backup"
    )]
    NotOpened {
        /// The conversation.
        key: ConversationKey,
        /// The sequence number of the message, from 1; 0 for a value that is not part of a message.
        sequence: u64,
        /// The kind of the value.
        column: String,
    },
    /// The value was sealed for another message, or for another position in the same message.
    #[error(
        "{column} of message {sequence} in conversation {key} was moved from message {found}: restore it from a backup"
    )]
    Moved {
        /// The conversation.
        key: ConversationKey,
        /// The sequence number of the message in which the value was found, from 1.
        sequence: u64,
        /// The sequence number of the message for which the value was sealed.
        found: u64,
        /// The kind of the value.
        column: String,
    },
    /// A value that should be sealed is in plaintext, or is sealed in a form that this release does
    /// not know.
    #[error("{column} of message {sequence} in conversation {key} was not sealed: {reason}")]
    NotSealed {
        /// The conversation.
        key: ConversationKey,
        /// The sequence number of the message, from 1; 0 for a value that is not part of a message.
        sequence: u64,
        /// The kind of the value.
        column: String,
        /// A description of the value.
        reason: &'static str,
    },
    /// The operating system returned no random numbers.
    #[error("the operating system has no random numbers for a nonce or key: try again")]
    NoRandomNumbers,
    /// A write was submitted before the key of its conversation was fetched.
    #[error(
        "the key for conversation {key} is not in the cache: read the conversation's head before writing, and let \
         the key provider cache the keys that it has fetched"
    )]
    KeyNotCached {
        /// The conversation.
        key: ConversationKey,
    },
    /// A conversation was written before its head (its revision and service id, without messages)
    /// was read.
    #[error(
        "the head of conversation {key} is unknown: read it before writing, because the writes are sealed for this \
         incarnation of the conversation"
    )]
    HeadNotRead {
        /// The conversation.
        key: ConversationKey,
    },
    /// The first messages are missing, and were not deleted by this store's own deletion of old
    /// runs (a prune).
    #[error(
        "messages up to {missing} of conversation {key} are missing, and the number of pruned messages is {pruned}: \
         restore them from a backup, or accept the loss with `EncryptedStore::accept_missing_beginning`"
    )]
    CutOff {
        /// The conversation.
        key: ConversationKey,
        /// The number of missing messages.
        missing: u64,
        /// The number of pruned messages.
        pruned: u64,
    },
    /// The open run (the run that is not committed yet) has another id than the run that has
    /// written its messages.
    #[error("the open run of conversation {key} was changed: its messages belong to another run")]
    RunChanged {
        /// The conversation.
        key: ConversationKey,
    },
    /// A value has a format of an older release, or the conversation has no sealed head. This store
    /// is configured to refuse both.
    #[error("conversation {key} has values of the former format, or its sealed head was removed")]
    FormerValues {
        /// The conversation.
        key: ConversationKey,
    },
    /// A different key has the same id.
    #[error(
        "the name {id:?} belongs to another key, whose values could then no longer be decrypted: \
         choose another name"
    )]
    KeyExists {
        /// The id.
        id: String,
    },
    /// The id of a key is empty or too long.
    #[error("the name {id:?} is not valid for a key: use a name of 1 to 64 bytes")]
    KeyName {
        /// The id.
        id: String,
    },
}

impl EncryptionError {
    /// Returns whether the same operation may succeed if it is repeated unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Key(error) => error.is_retryable(),
            Self::NoRandomNumbers | Self::KeyNotCached { .. } | Self::HeadNotRead { .. } => true,
            Self::NotOpened { .. }
            | Self::Moved { .. }
            | Self::NotSealed { .. }
            | Self::CutOff { .. }
            | Self::RunChanged { .. }
            | Self::FormerValues { .. }
            | Self::KeyExists { .. }
            | Self::KeyName { .. } => false,
        }
    }

    /// Returns the encryption error that is the source of a store's error, if there is one.
    pub fn in_store_error(error: &StoreError) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

/// Converts an error of opening a conversation into an error of the store. A retryable error, for
/// example because the keys are currently not available, does not become
/// [`StoreError::Unreadable`].
pub(crate) fn unopened(
    key: &ConversationKey,
    action: &'static str,
) -> impl Fn(EncryptionError) -> StoreError {
    move |error| match error.is_retryable() {
        true => StoreError::backend(action, true, error),
        false => StoreError::Unreadable { key: key.clone(), source: SharedError::new(error) },
    }
}

/// Converts an error into an error of the store.
pub(crate) fn reported(action: &'static str) -> impl Fn(EncryptionError) -> StoreError {
    move |error| StoreError::backend(action, error.is_retryable(), error)
}
