//! What the promises are tested with.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{AppendError, Conflict, Revision, StoreError, Write},
};

use super::Store;

pub(super) fn key(id: &str) -> ConversationKey {
    ConversationKey::new("scope", id)
}

/// A write of a run of its own, with these texts as user messages.
pub(super) fn write(key: &ConversationKey, expected: Revision, texts: &[&str]) -> Write {
    let messages = texts.iter().map(|text| Message::user(*text));
    write_messages(key, expected, messages)
}

pub(super) fn write_messages(
    key: &ConversationKey,
    expected: Revision,
    messages: impl IntoIterator<Item = Message>,
) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, messages.into_iter().map(Arc::new))
}

/// Submits writes and waits for them.
pub(super) async fn submit(store: &Store, writes: Vec<Write>) -> Result<Revision, AppendError> {
    let slot = store.reserve().await.expect("a slot");
    store.append(slot, writes).await
}

/// Stores a write that must succeed, and gives the revision after it.
pub(super) async fn stored(store: &Store, write: Write) -> Revision {
    let expected = write.result();
    let revision = submit(store, vec![write]).await.expect("the write is stored");
    assert_eq!(revision, expected, "the ticket tells the revision after the write");
    revision
}

/// Stores a write that must be refused as a conflict.
pub(super) async fn refused(store: &Store, write: Write) -> Conflict {
    let error = submit(store, vec![write.clone()]).await.expect_err("a conflict");
    assert_eq!(error.completed, 0);
    let conflict = conflict(error);
    assert_eq!(&conflict.key, write.key());
    assert_eq!(conflict.expected, write.expected());
    conflict
}

pub(super) fn conflict(error: AppendError) -> Conflict {
    match error.source {
        StoreError::Conflict(conflict) => *conflict,
        other => panic!("expected a conflict, not {other:?}"),
    }
}

/// The texts of a conversation.
pub(super) async fn texts(store: &Store, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.expect("a history");
    assert_eq!(history.messages.len() as u64, history.head.revision.sequence);
    history.messages.iter().map(|message| message.text()).collect()
}

/// The revision of a conversation; head and load must agree on it.
pub(super) async fn revision(store: &Store, key: &ConversationKey) -> Revision {
    let head = store.head(key).await.expect("a head");
    assert_eq!(store.load(key).await.expect("a history").head, head);
    head.revision
}
