//! Tests that a value that was moved to another position does not open.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, Part,
    store::{
        HistoryStore, InvocationQuery, Revision, ServiceIdChange, StoreError, ToolCallQueries,
        author::RecordedResult,
    },
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError, KeyError, KeyProvider, SecretKey};

use crate::common::{
    Store, append, encryption_error, forge, key, keys, messages, row, rows, sealed, write,
};

/// Creates a store that contains these sealed messages and this head under the given key. Loads the
/// conversation, and returns the number of its messages.
async fn load_as(
    key: &ConversationKey,
    (messages, head): (Vec<Message>, Option<Arc<str>>),
) -> Result<usize, StoreError> {
    let store = forge(key, messages, head, Vec::new()).await;
    store.load(key).await.map(|history| history.messages.len())
}

async fn store() -> Store {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    append(&store, write(&key(), Revision::ABSENT, messages()).with_tools(rows())).await;
    store
}

#[tokio::test]
async fn a_value_moved_to_another_conversation_or_scope_does_not_open() {
    let messages = sealed(&store().await, &key()).await;
    assert_eq!(load_as(&key(), messages.clone()).await.unwrap(), 3);
    for (scope, id) in [("bob", "support"), ("alice", "sales"), ("alices", "upport")] {
        let error = load_as(&ConversationKey::new(scope, id), messages.clone()).await.unwrap_err();
        let error = encryption_error(&error);
        assert!(matches!(error, EncryptionError::NotOpened { .. }), "{error:?}");
    }
}

/// A provider with one key for all conversations, unlike the providers of this crate.
struct OneKey;

#[async_trait]
impl KeyProvider for OneKey {
    async fn writing_key(
        &self,
        conversation: &ConversationKey,
    ) -> Result<(Arc<str>, SecretKey), KeyError> {
        Ok(("one".into(), self.key(conversation, "one").await?))
    }

    async fn key(&self, _: &ConversationKey, _: &str) -> Result<SecretKey, KeyError> {
        Ok(SecretKey::from_bytes([1; 32]))
    }
}

/// The authenticated data of a value include its conversation.
#[tokio::test]
async fn a_value_moved_to_another_conversation_with_the_same_key_does_not_open() {
    let store = EncryptedStore::new(MemoryStore::new(), OneKey);
    append(&store, write(&key(), Revision::ABSENT, [Message::user("1")])).await;
    let history = store.inner().load(&key()).await.unwrap();
    for (scope, id) in [("bob", "support"), ("alice", "sales"), ("alices", "upport")] {
        let other = ConversationKey::new(scope, id);
        let messages = history.messages.iter().map(|message| (**message).clone());
        let head = history.head.service_id.clone().unwrap();
        let write = write(&other, Revision::ABSENT, messages);
        append(store.inner(), write.with_service_id(ServiceIdChange::Set(head))).await;
        let error = store.load(&other).await.unwrap_err();
        let error = encryption_error(&error);
        assert!(matches!(error, EncryptionError::NotOpened { .. }), "{error:?}");
    }
    assert_eq!(store.load(&key()).await.unwrap().messages.len(), 1);
}

#[tokio::test]
async fn a_value_moved_to_another_position_of_its_conversation_does_not_open() {
    let (mut messages, head) = sealed(&store().await, &key()).await;
    messages.remove(0);
    let error = load_as(&key(), (messages, head)).await.unwrap_err();
    let error = encryption_error(&error);
    assert!(matches!(error, EncryptionError::Moved { sequence: 1, found: 2, .. }), "{error:?}");
}

#[tokio::test]
async fn a_value_moved_to_another_call_of_its_message_does_not_open() {
    let (mut messages, head) = sealed(&store().await, &key()).await;
    messages[1].parts.swap(1, 2);
    let error = load_as(&key(), (messages, head)).await.unwrap_err();
    let error = encryption_error(&error);
    assert!(matches!(error, EncryptionError::Moved { sequence: 2, .. }), "{error:?}");
}

#[tokio::test]
async fn a_value_moved_to_another_column_does_not_open() {
    let (mut messages, head) = sealed(&store().await, &key()).await;
    let body = messages[2].parts[0].clone();
    let Part::ToolResult(result) = &mut messages[2].parts[1] else { panic!("no result") };
    result.content = vec![body];
    let error = load_as(&key(), (messages, head)).await.unwrap_err();
    let error = encryption_error(&error);
    let EncryptionError::NotOpened { column, .. } = error else { panic!("{error:?}") };
    assert_eq!(column, "result");
}

/// The position that a value contains in plaintext is authenticated.
#[tokio::test]
async fn a_value_whose_plaintext_position_was_overwritten_does_not_open() {
    let (mut messages, head) = sealed(&store().await, &key()).await;
    messages.remove(0);
    for part in &mut messages[0].parts {
        if let Part::Native(native) = part {
            let moved = native.item.get().replacen(".1:2:0:", ".1:1:0:", 1);
            assert_ne!(moved, native.item.get());
            native.item = moved.parse().unwrap();
        }
    }
    let error = load_as(&key(), (messages, head)).await.unwrap_err();
    let error = encryption_error(&error);
    assert!(matches!(error, EncryptionError::NotOpened { .. }), "{error:?}");
}

#[tokio::test]
async fn a_result_moved_to_another_row_of_the_record_does_not_open() {
    let store = store().await;
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let apart = found[1].1.clone();
    let mut forged = row(2, 0, apart.status);
    forged.result = RecordedResult::Apart(Box::new(apart.result.unwrap()));
    forged.error = apart.error;
    let at = store.head(&key()).await.unwrap().revision;
    append(store.inner(), write(&key(), at, []).with_tools(vec![forged])).await;
    let answer = store.invocations(&InvocationQuery::of(&key())).await.unwrap();
    assert_eq!(answer.found.len(), 2);
    assert_eq!((answer.unreadable[0].sequence, answer.unreadable[0].index), (2, 0));
}
