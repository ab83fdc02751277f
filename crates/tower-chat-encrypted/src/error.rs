//! What can go wrong with a sealed value.

use std::error::Error;

use tower_chat_core::{ConversationKey, SharedError, store::StoreError};

use crate::KeyError;

/// A value cannot be sealed or opened. It is the source of a [`StoreError::Unreadable`] or a
/// [`StoreError::Backend`]; [`in_store_error`](Self::in_store_error) finds it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionError {
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value is not what was sealed for this position.
    #[error(
        "{column} of message {sequence} in conversation {key} does not open: it was changed, or \
         moved there from elsewhere"
    )]
    NotOpened {
        /// The conversation.
        key: ConversationKey,
        /// The number of the message, from 1; 0 for what belongs to none.
        sequence: u64,
        /// What it should be.
        column: String,
    },
    /// The value was sealed for another message, or for another position in this one.
    #[error(
        "{column} of message {sequence} in conversation {key} was moved there from message {found}"
    )]
    Moved {
        /// The conversation.
        key: ConversationKey,
        /// The number of the message in which it was found, from 1.
        sequence: u64,
        /// The number of the message for which it was sealed.
        found: u64,
        /// What it should be.
        column: String,
    },
    /// What should be sealed is not, or not as this release does it.
    #[error("{column} of message {sequence} in conversation {key} was not sealed: {reason}")]
    NotSealed {
        /// The conversation.
        key: ConversationKey,
        /// The number of the message, from 1; 0 for what belongs to none.
        sequence: u64,
        /// What it should be.
        column: String,
        /// What was found.
        reason: &'static str,
    },
    /// The operating system gave no random numbers.
    #[error("the operating system has no random numbers for a nonce or key: try again")]
    NoRandomNumbers,
    /// A write was submitted before its key was at hand.
    #[error(
        "the key for conversation {key} is not at hand: read the conversation's head before \
         writing, and have the key provider keep the keys it has fetched"
    )]
    KeyNotAtHand {
        /// The conversation.
        key: ConversationKey,
    },
    /// A conversation was written before its head was read.
    #[error(
        "the head of conversation {key} is not known: read it before writing, so that what is \
         written is sealed for the same life of the conversation"
    )]
    HeadNotRead {
        /// The conversation.
        key: ConversationKey,
    },
    /// The first messages are missing, and no prune through this store has removed them.
    #[error(
        "the first {missing} messages of conversation {key} are missing, and {pruned} were pruned"
    )]
    CutOff {
        /// The conversation.
        key: ConversationKey,
        /// How many are missing.
        missing: u64,
        /// How many were pruned.
        pruned: u64,
    },
    /// The open run is not the one that has staged its messages.
    #[error("the open run of conversation {key} was changed: its messages are another run's")]
    RunChanged {
        /// The conversation.
        key: ConversationKey,
    },
    /// There is something of a former format, which this store does not take.
    #[error(
        "conversation {key} has values of the former format, or its sealed head was taken away"
    )]
    FormerValues {
        /// The conversation.
        key: ConversationKey,
    },
    /// Two keys would have one name.
    #[error("another key is named {id:?} already: what it sealed would not open any more")]
    KeyExists {
        /// The name.
        id: String,
    },
    /// The name of a key cannot be written down with values.
    #[error("a key cannot be named {id:?}: the name must be 1 to 64 bytes long")]
    KeyName {
        /// The name.
        id: String,
    },
}

impl EncryptionError {
    /// Whether the same operation may succeed when it is tried again unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Key(error) => error.is_retryable(),
            Self::NoRandomNumbers | Self::KeyNotAtHand { .. } | Self::HeadNotRead { .. } => true,
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

    /// The error of this kind that a store reported, if it is one.
    pub fn in_store_error(error: &StoreError) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

/// The error of a conversation that cannot be opened, as the store reports it. Where the same may succeed
/// later, such as when the keys are at hand again, the conversation is not unreadable.
pub(crate) fn unopened(
    key: &ConversationKey,
    action: &'static str,
) -> impl Fn(EncryptionError) -> StoreError {
    move |error| match error.is_retryable() {
        true => StoreError::backend(action, true, error),
        false => StoreError::Unreadable { key: key.clone(), source: SharedError::new(error) },
    }
}

/// The error as the store reports it.
pub(crate) fn reported(action: &'static str) -> impl Fn(EncryptionError) -> StoreError {
    move |error| StoreError::backend(action, error.is_retryable(), error)
}
