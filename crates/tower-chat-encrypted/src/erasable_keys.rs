//! Keys that can be erased individually.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tower_chat_core::{ConversationKey, RunId};

use crate::{KeyError, KeyProvider, SecretKey};

/// Creates a random key for each conversation when it is first written, and stores the keys in
/// memory.
///
/// Erasing a key makes the conversation unreadable immediately, in the store and in all copies of
/// the store's data. Outer stores, such as a cache, still contain the plaintext; see
/// [the crate](crate#keys). A provider that stores keys in a database can be written in the same
/// way.
///
/// Clones share their keys. The keys are lost when the last clone is dropped, unless the program
/// has [exported](Self::keys) them, to [import](Self::insert) them again.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, Message, MessageId, RunId};
/// use tower_chat_core::store::{HistoryStore, Revision, author::Write};
/// use tower_chat_encrypted::{EncryptedStore, ErasableKeys};
///
/// let keys = ErasableKeys::new();
/// let store = EncryptedStore::new(MemoryStore::new(), keys.clone());
/// let key = ConversationKey::new("alice", "diary");
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("a secret").into()]);
/// # store.head(&key).await?;
/// store.append(store.reserve().await?, vec![write]).await?;
/// assert_eq!(keys.keys().len(), 1);
///
/// assert!(keys.erase(&key));
/// assert!(store.load(&key).await.is_err()); // unreadable, in every copy
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct ErasableKeys(Arc<Mutex<Keys>>);

type Keys = HashMap<ConversationKey, (Arc<str>, SecretKey)>;

impl ErasableKeys {
    /// Creates a provider without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Erases a conversation's key, and returns whether the key existed. If the conversation is
    /// written again, for example by a run in progress, a new key is created.
    pub fn erase(&self, conversation: &ConversationKey) -> bool {
        self.lock().remove(conversation).is_some()
    }

    /// Returns all keys with their ids, for the caller to store them in a safe place.
    pub fn keys(&self) -> Vec<(ConversationKey, Arc<str>, SecretKey)> {
        let keys = self.lock();
        let all = keys.iter().map(|(key, (id, secret))| (key.clone(), id.clone(), secret.clone()));
        all.collect()
    }

    /// Inserts a key.
    pub fn insert(&self, conversation: ConversationKey, id: impl Into<Arc<str>>, key: SecretKey) {
        self.lock().insert(conversation, (id.into(), key));
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl KeyProvider for ErasableKeys {
    async fn writing_key(
        &self,
        conversation: &ConversationKey,
    ) -> Result<(Arc<str>, SecretKey), KeyError> {
        let mut keys = self.lock();
        if let Some(known) = keys.get(conversation) {
            return Ok(known.clone());
        }
        let drawn = SecretKey::random().map_err(|source| KeyError::NotFetched {
            key: conversation.clone(),
            retryable: true,
            source: source.into(),
        })?;
        let named: (Arc<str>, SecretKey) = (RunId::new().to_string().into(), drawn);
        keys.insert(conversation.clone(), named.clone());
        Ok(named)
    }

    async fn key(&self, conversation: &ConversationKey, id: &str) -> Result<SecretKey, KeyError> {
        let keys = self.lock();
        let known = keys.get(conversation).filter(|(known, _)| **known == *id);
        let unknown = || KeyError::Unknown { key: conversation.clone(), id: id.to_owned() };
        known.map(|(_, key)| key.clone()).ok_or_else(unknown)
    }
}
