//! Where keys come from.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat_core::{BoxError, ConversationKey};

use crate::SecretKey;

/// Has the keys of conversations.
///
/// Submitting a write cannot wait, so [`writing_key`](Self::writing_key) must be ready at once where
/// it was ready for the same conversation before: a provider that fetches keys over a network keeps
/// those it has fetched for a while. The store asks for it whenever the head of a conversation is
/// read, which every run begins with.
///
/// One key for every conversation of a scope, from a table that was read at the start:
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
    /// The key for new values of a conversation, with its name: 1 to 64 bytes, kept in clear.
    ///
    /// # Errors
    ///
    /// If there is none.
    async fn writing_key(
        &self,
        conversation: &ConversationKey,
    ) -> Result<(Arc<str>, SecretKey), KeyError>;

    /// The key by which values of a conversation were sealed.
    ///
    /// # Errors
    ///
    /// If there is none, or not any more.
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

/// A key cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Nobody has it: it was erased, or never was.
    #[error("there is no key {id:?} for conversation {key}: what it sealed cannot be read")]
    Unknown {
        /// The conversation.
        key: ConversationKey,
        /// The key's name.
        id: String,
    },
    /// Whoever has it did not give it.
    #[error("the key for conversation {key} could not be fetched")]
    NotFetched {
        /// The conversation.
        key: ConversationKey,
        /// The same may succeed when it is tried again.
        retryable: bool,
        /// Why not.
        source: BoxError,
    },
}

impl KeyError {
    /// Whether the same may succeed when it is tried again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unknown { .. } => false,
            Self::NotFetched { retryable, .. } => *retryable,
        }
    }
}
