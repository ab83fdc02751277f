//! The error of a check or a repair.

use std::error::Error;

use tower_chat_core::{ConversationKey, is_verdict, store::StoreError};

/// A check or a repair of a store failed. Damage that a check finds is not an error: it is
/// [reported](crate::Finding).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The scopes cannot be listed.
    #[error("the scopes of the store cannot be listed")]
    Scopes(#[source] StoreError),
    /// The conversations of a scope, or its open runs, cannot be listed.
    #[error("the conversations of scope {scope:?} cannot be listed")]
    List {
        /// The scope.
        scope: String,
        /// The error of the store.
        source: StoreError,
    },
    /// The file of the store cannot be checked or repaired.
    #[error("the database cannot be checked")]
    File(#[source] StoreError),
    /// A conversation cannot be read.
    #[error("conversation {key} cannot be checked")]
    Conversation {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// The directory entry of a conversation cannot be read.
    #[error("the directory entry of conversation {key} cannot be read")]
    Directory {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// The open run of a conversation cannot be read.
    #[error("the open run of conversation {key} cannot be read or ended")]
    OpenRun {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// A conversation is encrypted, and the target has no keys.
    #[error("conversation {key} of the store is encrypted: give the keys with Target::encrypted")]
    Sealed {
        /// The first encrypted conversation.
        key: ConversationKey,
    },
    /// A conversation is encrypted with a key that the target does not have.
    #[error(
        "conversation {key} is encrypted with a key that is not among those of the target: add the key"
    )]
    NoKey {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// A conversation cannot be repaired.
    #[error("conversation {key} cannot be repaired; earlier conversations were repaired")]
    Repair {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
}

/// Formats an error and its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // A transparent error has the same text as its source.
        if !is_verdict(cause) && !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
