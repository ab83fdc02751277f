//! Keys that can be erased one by one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tower_chat_core::{ConversationKey, RunId};

use crate::{KeyError, KeyProvider, SecretKey};

/// A random key for each conversation, drawn when it is first written, and kept in memory.
///
/// Erasing it makes the conversation unreadable at once, in the store and in every copy of what that
/// has; stores around it, such as a cache, have the clear text, see [the crate](crate#keys). The keys
/// live as long as this does, unless they are [taken out](Self::keys) and
/// [brought back](Self::insert); a provider over a database of keys can be made in the same way.
///
/// Clones share their keys.
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
/// assert!(store.load(&key).await.is_err()); // nobody can read it any more, in no copy
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct ErasableKeys(Arc<Mutex<Keys>>);

type Keys = HashMap<ConversationKey, (Arc<str>, SecretKey)>;

impl ErasableKeys {
    /// No keys yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Erases a conversation's key; says whether there was one. A new one is drawn if the
    /// conversation is written again, be it by a run under way or a store that has gathered writes.
    pub fn erase(&self, conversation: &ConversationKey) -> bool {
        self.lock().remove(conversation).is_some()
    }

    /// All keys with their names, to keep them somewhere safe.
    pub fn keys(&self) -> Vec<(ConversationKey, Arc<str>, SecretKey)> {
        let keys = self.lock();
        let all = keys.iter().map(|(key, (id, secret))| (key.clone(), id.clone(), secret.clone()));
        all.collect()
    }

    /// Brings a key back.
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
