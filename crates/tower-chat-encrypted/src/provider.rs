//! The trait of key providers.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat_core::{BoxError, ConversationKey};

use crate::SecretKey;

/// Returns the keys of conversations.
///
/// Once [`writing_key`](Self::writing_key) has returned the key of a conversation, later calls for
/// the same conversation must be ready immediately, because the submission of a write is not async
/// and cannot wait for a key. A provider that fetches keys over a network therefore has to cache
/// them for a while. The store also calls this method each time it reads the head (the revision) of
/// a conversation, as every run does first.
///
/// The example has one key for all conversations of a scope, from a table:
///
/// ```
/// use std::{collections::HashMap, sync::Arc};
/// use tower_chat_core::ConversationKey;
/// use tower_chat_encrypted::{KeyError, KeyProvider, SecretKey};
///
/// struct ScopeKeys(HashMap<String, SecretKey>);
///
/// impl ScopeKeys {
///     fn find(&self, conversation: &ConversationKey) -> Result<SecretKey, KeyError> {
///         let key = self.0.get(conversation.scope()).cloned();
///         let id = conversation.scope().to_owned();
///         key.ok_or_else(|| KeyError::Unknown { key: conversation.clone(), id })
///     }
/// }
///
/// #[async_trait::async_trait]
/// impl KeyProvider for ScopeKeys {
///     async fn writing_key(&self, of: &ConversationKey) -> Result<(Arc<str>, SecretKey), KeyError> {
///         Ok(("2026".into(), self.find(of)?))
///     }
///
///     async fn key(&self, of: &ConversationKey, id: &str) -> Result<SecretKey, KeyError> {
///         match id {
///             "2026" => self.find(of),
///             _ => Err(KeyError::Unknown { key: of.clone(), id: id.to_owned() }),
///         }
///     }
/// }
/// # let keys = ScopeKeys([("alice".to_owned(), SecretKey::from_bytes([7; 32]))].into());
/// # assert!(keys.find(&ConversationKey::new("alice", "chat")).is_ok());
/// # assert!(keys.find(&ConversationKey::new("bob", "chat")).is_err());
/// ```
#[async_trait]
pub trait KeyProvider: Send + Sync + 'static {
    /// Returns the key for new values of a conversation, and the id of the key. The id has 1 to 64
    /// bytes, and is stored in plaintext.
    ///
    /// # Errors
    ///
    /// If the conversation has no key.
    async fn writing_key(
        &self,
        conversation: &ConversationKey,
    ) -> Result<(Arc<str>, SecretKey), KeyError>;

    /// Returns the key with this id, with which values of a conversation were encrypted.
    ///
    /// # Errors
    ///
    /// If the key does not exist, or was erased.
    async fn key(&self, conversation: &ConversationKey, id: &str) -> Result<SecretKey, KeyError>;
}

#[async_trait]
impl<P: KeyProvider + ?Sized> KeyProvider for Arc<P> {
    async fn writing_key(
        &self,
        conversation: &ConversationKey,
    ) -> Result<(Arc<str>, SecretKey), KeyError> {
        (**self).writing_key(conversation).await
    }

    async fn key(&self, conversation: &ConversationKey, id: &str) -> Result<SecretKey, KeyError> {
        (**self).key(conversation, id).await
    }
}

/// A key is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key does not exist, or was erased.
    #[error(
        "there is no key {id:?} for conversation {key}, and the values that it sealed cannot be read: add the key"
    )]
    Unknown {
        /// The conversation.
        key: ConversationKey,
        /// The key's id.
        id: String,
    },
    /// The key could not be fetched.
    #[error("the key for conversation {key} could not be fetched")]
    NotFetched {
        /// The conversation.
        key: ConversationKey,
        /// Whether a retry may succeed.
        retryable: bool,
        /// The cause.
        source: BoxError,
    },
}

impl KeyError {
    /// Returns whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unknown { .. } => false,
            Self::NotFetched { retryable, .. } => *retryable,
        }
    }
}
