//! Tests of rotation, erasure, and keys that are not available.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey, MemoryStore, Message,
    store::{HistoryStore, Revision, ToolCallQueries},
};
use tower_chat_encrypted::{
    EncryptedStore, EncryptionError, ErasableKeys, KeyError, KeyProvider, MasterKeys, SecretKey,
};

use crate::common::{append, encryption_error, key, keys, messages, rows, write};

async fn texts(store: &dyn HistoryStore) -> Vec<String> {
    store.load(&key()).await.unwrap().messages.iter().map(|message| message.text()).collect()
}

#[tokio::test]
async fn two_processes_write_and_read_while_their_keys_are_rotated_one_after_the_other() {
    let inner = MemoryStore::new();
    let (here, there) = (keys(), keys());
    let (ours, theirs) = (
        EncryptedStore::new(inner.clone(), here.clone()),
        EncryptedStore::new(inner.clone(), there.clone()),
    );
    let at = append(&ours, write(&key(), Revision::ABSENT, [Message::user("1")])).await;
    let second = || SecretKey::from_bytes([9; 32]);
    here.add("second", second()).unwrap();
    there.add("second", second()).unwrap();
    here.rotate("second", second()).unwrap();
    let at = append(&ours, write(&key(), at, [Message::user("2")])).await;
    assert_eq!(texts(&theirs).await, ["1", "2"]);
    let at = append(&theirs, write(&key(), at, [Message::user("3")])).await;
    there.rotate("second", second()).unwrap();
    append(&theirs, write(&key(), at, [Message::user("4")])).await;
    assert_eq!(texts(&ours).await, ["1", "2", "3", "4"]);
    let named: Vec<_> = inner
        .load(&key())
        .await
        .unwrap()
        .messages
        .iter()
        .map(|message| format!("{message:?}").contains("tower-chat-3:second:"))
        .collect();
    assert_eq!(named, [false, true, false, true]);

    let new = MasterKeys::new("second", second()).unwrap();
    let error = EncryptedStore::new(inner, new).load(&key()).await.unwrap_err();
    let error = encryption_error(&error);
    assert!(
        matches!(error, EncryptionError::Key(KeyError::Unknown { id, .. }) if id == "first"),
        "{error:?}"
    );
}

#[tokio::test]
async fn erasing_a_key_erases_its_conversation_and_no_other() {
    let (inner, erasable) = (MemoryStore::new(), ErasableKeys::new());
    let store = EncryptedStore::new(inner.clone(), erasable.clone());
    let other = ConversationKey::new("alice", "other");
    append(&store, write(&key(), Revision::ABSENT, messages()).with_tools(rows())).await;
    append(&store, write(&other, Revision::ABSENT, [Message::user("kept")])).await;
    let backup = erasable.keys();
    assert_eq!(backup.len(), 2);
    assert!(erasable.erase(&key()));
    assert!(!erasable.erase(&key()));
    let error = store.load(&key()).await.unwrap_err();
    let error = encryption_error(&error);
    assert!(matches!(error, EncryptionError::Key(KeyError::Unknown { .. })), "{error:?}");
    let record = tower_chat_core::store::InvocationQuery::in_scope("alice");
    let record = store.invocations(&record).await.unwrap();
    assert_eq!((record.found.len(), record.unreadable.len()), (0, 3));
    assert_eq!(store.load(&other).await.unwrap().messages.len(), 1);

    for (conversation, id, secret) in backup {
        erasable.insert(conversation, id, secret);
    }
    assert_eq!(store.load(&key()).await.unwrap().messages.len(), 3);
    erasable.erase(&key());
    assert!(store.delete(&key()).await.unwrap());
    append(&store, write(&key(), Revision::ABSENT, [Message::user("new")])).await;
    assert_eq!(texts(&store).await, ["new"]);
}

#[tokio::test]
async fn each_conversation_has_a_different_key() {
    let keys = keys();
    let mut seen = Vec::new();
    for (scope, id) in [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")] {
        let (name, key) = keys.writing_key(&ConversationKey::new(scope, id)).await.unwrap();
        assert_eq!(&*name, "first");
        assert!(!seen.contains(key.as_bytes()));
        seen.push(*key.as_bytes());
    }
    assert_eq!(format!("{:?}", SecretKey::from_bytes([65; 32])), "SecretKey(..)");
}

#[test]
fn a_key_with_an_empty_or_too_long_name_is_refused() {
    for name in [String::new(), "x".repeat(65)] {
        let error = MasterKeys::new(name, SecretKey::from_bytes([1; 32])).unwrap_err();
        assert!(matches!(error, EncryptionError::KeyName { .. }));
    }
}

/// A provider that fetches keys over a network, and does not cache them.
struct Remote(MasterKeys);

#[async_trait]
impl KeyProvider for Remote {
    async fn writing_key(
        &self,
        conversation: &ConversationKey,
    ) -> Result<(Arc<str>, SecretKey), KeyError> {
        tokio::task::yield_now().await;
        self.0.writing_key(conversation).await
    }

    async fn key(&self, conversation: &ConversationKey, id: &str) -> Result<SecretKey, KeyError> {
        tokio::task::yield_now().await;
        self.0.key(conversation, id).await
    }
}

#[tokio::test]
async fn a_write_whose_key_is_not_cached_fails_with_a_retryable_error() {
    let store = EncryptedStore::new(MemoryStore::new(), Remote(keys()));
    let write = write(&key(), Revision::ABSENT, [Message::user("1")]);
    let slot = store.reserve().await.unwrap();
    let error = store.append(slot, vec![write.clone()]).await.unwrap_err();
    assert_eq!(error.completed, 0);
    assert!(error.source.is_retryable());
    assert!(matches!(encryption_error(&error.source), EncryptionError::KeyNotCached { .. }));
    let at_hand = EncryptedStore::new(store.inner().clone(), keys());
    append(&at_hand, write).await;
    assert_eq!(texts(&store).await, ["1"]);
}

struct Down;

#[async_trait]
impl KeyProvider for Down {
    async fn writing_key(
        &self,
        conversation: &ConversationKey,
    ) -> Result<(Arc<str>, SecretKey), KeyError> {
        let source = "no route to host".into();
        Err(KeyError::NotFetched { key: conversation.clone(), retryable: true, source })
    }

    async fn key(&self, conversation: &ConversationKey, id: &str) -> Result<SecretKey, KeyError> {
        Err(KeyError::Unknown { key: conversation.clone(), id: id.to_owned() })
    }
}

#[tokio::test]
async fn reading_the_head_without_a_key_fails_with_a_retryable_error() {
    let store = EncryptedStore::new(MemoryStore::new(), Down);
    let error = store.head(&key()).await.unwrap_err();
    assert!(error.is_retryable());
    assert!(matches!(encryption_error(&error), EncryptionError::Key(KeyError::NotFetched { .. })));
}

#[tokio::test]
async fn a_second_key_with_an_existing_name_is_refused_and_sealed_messages_still_open() {
    let keys = keys();
    let store = EncryptedStore::new(MemoryStore::new(), keys.clone());
    append(&store, write(&key(), Revision::ABSENT, [Message::user("sealed before")])).await;
    let other = || SecretKey::from_bytes([9; 32]);
    for result in [keys.add("first", other()), keys.rotate("first", other())] {
        let error = result.unwrap_err();
        assert!(matches!(&error, EncryptionError::KeyExists { id } if id == "first"), "{error:?}");
    }
    assert_eq!(texts(&store).await, ["sealed before"]);
    // Adding the same key again has no effect, and `rotate` accepts a key that was added.
    keys.add("first", SecretKey::from_bytes([7; 32])).unwrap();
    keys.add("second", other()).unwrap();
    keys.rotate("second", other()).unwrap();
    assert!(keys.add("second", SecretKey::from_bytes([1; 32])).is_err());
    assert_eq!(texts(&store).await, ["sealed before"]);
}
