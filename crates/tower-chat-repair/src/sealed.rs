//! Detects encrypted conversations, and marks a missing beginning of one as pruned.

use tower_chat_core::store::{ConversationRows, StoreError};

/// The reason why the rows of a conversation cannot be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unopened {
    /// A key is missing. Without the key, damage cannot be detected.
    NoKey,
    /// The rows are damaged.
    Damaged,
}

/// Returns why rows cannot be decrypted, or `None` if the error has another cause.
#[cfg(feature = "encrypted")]
pub(crate) fn unopened(error: &StoreError) -> Option<Unopened> {
    use tower_chat_encrypted::EncryptionError;

    EncryptionError::in_store_error(error).map(|error| match error {
        EncryptionError::Key(_) => Unopened::NoKey,
        _ => Unopened::Damaged,
    })
}

#[cfg(not(feature = "encrypted"))]
pub(crate) fn unopened(error: &StoreError) -> Option<Unopened> {
    error.is_damage().then_some(Unopened::Damaged)
}

/// Returns whether the messages of the rows are still encrypted.
#[cfg(feature = "encrypted")]
pub(crate) fn is_sealed(rows: &ConversationRows) -> bool {
    let mut messages = rows.messages.iter().filter_map(|(_, message)| message.as_ref().ok());
    messages.any(|message| tower_chat_encrypted::is_sealed_message(message))
}

#[cfg(not(feature = "encrypted"))]
pub(crate) fn is_sealed(_: &ConversationRows) -> bool {
    false
}

#[cfg(feature = "encrypted")]
mod beginning {
    use async_trait::async_trait;
    use tower_chat_core::{
        ConversationKey,
        store::{HistoryStore, StoreError},
    };
    use tower_chat_encrypted::{EncryptedStore, EncryptionError};

    use crate::target::SealedBeginning;

    #[async_trait]
    impl<S: HistoryStore> SealedBeginning for EncryptedStore<S> {
        async fn missing(&self, key: &ConversationKey) -> Option<u64> {
            let error = HistoryStore::head(self, key).await.err()?;
            match EncryptionError::in_store_error(&error)? {
                EncryptionError::CutOff { missing, .. } => Some(*missing),
                _ => None,
            }
        }

        async fn accept(&self, key: &ConversationKey) -> Result<bool, StoreError> {
            self.accept_missing_beginning(key).await
        }
    }
}
