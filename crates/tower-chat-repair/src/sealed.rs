//! Detects conversations that were read without their encryption keys, and marks the missing
//! beginning of an encrypted conversation as pruned (deleted on purpose).

use tower_chat_core::store::{ConversationRows, StoreError};

/// Returns whether reading failed because an encryption key is missing. Without the key, it is
/// unknown whether the rows are damaged.
#[cfg(feature = "encrypted")]
pub(crate) fn is_key_missing(error: &StoreError) -> bool {
    use tower_chat_encrypted::EncryptionError;

    matches!(EncryptionError::in_store_error(error), Some(EncryptionError::Key(_)))
}

#[cfg(not(feature = "encrypted"))]
pub(crate) fn is_key_missing(_: &StoreError) -> bool {
    false
}

/// Returns whether reading failed because the rows are damaged. The result is only meaningful if
/// [`is_key_missing`] returns `false`.
#[cfg(feature = "encrypted")]
pub(crate) fn is_damage(error: &StoreError) -> bool {
    tower_chat_encrypted::EncryptionError::in_store_error(error).is_some()
}

#[cfg(not(feature = "encrypted"))]
pub(crate) fn is_damage(error: &StoreError) -> bool {
    error.is_damage()
}

/// Returns whether the rows contain an encrypted message, which means that the store was read
/// without encryption keys.
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
