//! Keys that are derived from one secret.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use hkdf::Hkdf;
use sha2::Sha256;
use tower_chat_core::ConversationKey;

use crate::{EncryptionError, KeyError, KeyProvider, SecretKey, seal::check_name};

/// Derives the key of each conversation from a master key, with HKDF-SHA256 (RFC 5869).
///
/// A provider has any number of master keys, each with an id. New values are sealed (encrypted)
/// with the key from the last call of [`rotate`](Self::rotate), or, before the first such call,
/// with the key from [`new`](Self::new). Every key of the provider opens (decrypts) older values.
///
/// ```
/// use tower_chat_encrypted::{MasterKeys, SecretKey};
/// let keys = MasterKeys::new("2026", SecretKey::random()?)?;
/// keys.add("2025", SecretKey::random()?)?; // opens older values
/// keys.rotate("2027", SecretKey::random()?)?; // seals from now on
/// # Ok::<(), tower_chat_encrypted::EncryptionError>(())
/// ```
///
/// Clones share their keys.
#[derive(Clone)]
pub struct MasterKeys(Arc<RwLock<Keys>>);

struct Keys {
    writing: Arc<str>,
    all: Vec<(Arc<str>, SecretKey)>,
}

impl MasterKeys {
    /// Creates a provider with one master key.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::KeyName`], if the id is empty or too long.
    pub fn new(id: impl Into<Arc<str>>, key: SecretKey) -> Result<Self, EncryptionError> {
        let id = id.into();
        check_name(&id)?;
        let keys = Keys { writing: id.clone(), all: vec![(id, key)] };
        Ok(Self(Arc::new(RwLock::new(keys))))
    }

    /// Adds a key that opens values, but does not seal new ones. If several processes share a
    /// store, add a key in all of them before one of them calls [`rotate`](Self::rotate) with it.
    /// Adding a key again has no effect.
    ///
    /// # Errors
    ///
    /// [`EncryptionError::KeyName`]; [`EncryptionError::KeyExists`] if a different key has this id.
    /// The earlier key then keeps the id, because values that were sealed with the earlier key
    /// would otherwise no longer open.
    pub fn add(&self, id: impl Into<Arc<str>>, key: SecretKey) -> Result<(), EncryptionError> {
        self.put(id.into(), key, false)
    }

    /// Adds a key, with which all new values are sealed from now on.
    ///
    /// # Errors
    ///
    /// The errors of [`add`](Self::add).
    pub fn rotate(&self, id: impl Into<Arc<str>>, key: SecretKey) -> Result<(), EncryptionError> {
        self.put(id.into(), key, true)
    }

    fn put(&self, id: Arc<str>, key: SecretKey, seals: bool) -> Result<(), EncryptionError> {
        check_name(&id)?;
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match keys.all.iter().find(|(known, _)| *known == id) {
            Some((_, known)) if known.as_bytes() != key.as_bytes() => {
                return Err(EncryptionError::KeyExists { id: id.to_string() });
            }
            Some(_) => {}
            None => keys.all.push((id.clone(), key)),
        }
        if seals {
            keys.writing = id;
        }
        Ok(())
    }

    fn derived(&self, conversation: &ConversationKey, id: Option<&str>) -> Option<Named> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let id = id.unwrap_or(&keys.writing);
        let (id, master) = keys.all.iter().find(|(known, _)| **known == *id)?;
        Some((id.clone(), derive(master, conversation)?))
    }
}

type Named = (Arc<str>, SecretKey);

/// Derives the key of a conversation from a master key.
fn derive(master: &SecretKey, conversation: &ConversationKey) -> Option<SecretKey> {
    let scope = conversation.scope().as_bytes();
    let length = (scope.len() as u64).to_le_bytes();
    let info: [&[u8]; 4] =
        [b"tower-chat conversation key 1", &length, scope, conversation.id().as_bytes()];
    let derived = Hkdf::<Sha256>::new(None, master.as_bytes());
    let mut expanded = Ok(());
    let key = SecretKey::filled_by(|bytes| expanded = derived.expand_multi_info(&info, bytes));
    expanded.ok()?;
    Some(key)
}

#[async_trait]
impl KeyProvider for MasterKeys {
    async fn writing_key(&self, conversation: &ConversationKey) -> Result<Named, KeyError> {
        let unknown = || KeyError::Unknown { key: conversation.clone(), id: String::new() };
        self.derived(conversation, None).ok_or_else(unknown)
    }

    async fn key(&self, conversation: &ConversationKey, id: &str) -> Result<SecretKey, KeyError> {
        let unknown = || KeyError::Unknown { key: conversation.clone(), id: id.to_owned() };
        self.derived(conversation, Some(id)).map(|(_, key)| key).ok_or_else(unknown)
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<_> = keys.all.iter().map(|(id, _)| id).collect();
        f.debug_struct("MasterKeys").field("writing", &keys.writing).field("all", &names).finish()
    }
}
