//! The error of a check or a repair.

use std::error::Error;

use tower_chat_core::{ConversationKey, is_verdict, store::StoreError};

/// A check or a repair of a store failed. Damage that a check finds is not an error: it is
/// [reported](crate::Finding).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The store failed to list its scopes.
    #[error("the scopes of the store cannot be listed")]
    Scopes(#[source] StoreError),
    /// The store failed to list the conversations of a scope, or the open runs, whose messages are
    /// not part of the history yet. A scope is a group of conversations, such as those of one user.
    #[error("the conversations of scope {scope:?} cannot be listed")]
    List {
        /// The scope.
        scope: String,
        /// The error of the store.
        source: StoreError,
    },
    /// The check or the repair of the store's file failed.
    #[error("the database cannot be checked")]
    File(#[source] StoreError),
    /// The store failed to read a conversation.
    #[error("conversation {key} cannot be checked")]
    Conversation {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// The store failed to read the directory entry (description, times and counts) of a
    /// conversation.
    #[error("the directory entry of conversation {key} cannot be read")]
    Directory {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// The store failed to read the open run of a conversation.
    #[error("the open run of conversation {key} cannot be read or ended")]
    OpenRun {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// A conversation is encrypted, and the [`Target`](crate::Target) was created without
    /// encryption keys.
    #[error(
        "conversation {key} of the store is encrypted: create the target with Target::encrypted and the keys"
    )]
    Sealed {
        /// The first encrypted conversation.
        key: ConversationKey,
    },
    /// A conversation is encrypted with a key that the [`Target`](crate::Target) does not have.
    #[error(
        "conversation {key} is encrypted with a key that the target does not have: add the key to the target"
    )]
    NoKey {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// The store failed to write the repair of a conversation. Earlier conversations were repaired.
    #[error("conversation {key} cannot be repaired; earlier conversations were repaired")]
    Repair {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
}

/// Formats an error and its chain of sources in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The text of a transparent error ends with the text of its source, which must not be
        // repeated.
        if !is_verdict(cause) && !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
