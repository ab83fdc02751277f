//! A conversation with secrets in every field.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    ApprovalRequest, ConversationKey, MemoryStore, Message, MessageId, Part, Role, RunId, ToolCall,
    ToolResult, ToolStatus,
    store::{
        HistoryStore, Lease, LeaseEnd, Revision, SequencePosition, ServiceIdChange, StoreError,
        author::{RecordedResult, Staged, ToolRecord, Write},
    },
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError, MasterKeys, SecretKey};

pub(crate) type Store = EncryptedStore<MemoryStore>;

pub(crate) fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

pub(crate) fn keys() -> MasterKeys {
    MasterKeys::new("first", SecretKey::from_bytes([7; 32])).unwrap()
}

pub(crate) fn write(
    key: &ConversationKey,
    expected: Revision,
    messages: impl IntoIterator<Item = Message>,
) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, messages.into_iter().map(Arc::new))
}

pub(crate) async fn append(store: &dyn HistoryStore, write: Write) -> Revision {
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap()
}

pub(crate) fn row(sequence: u64, index: u32, status: ToolStatus) -> ToolRecord {
    let position = SequencePosition { sequence, index };
    let mut row = ToolRecord::pending(position, 0, "call_1", "look");
    row.status = status;
    row
}

/// Returns messages in which every text contains the word `secret`.
pub(crate) fn messages() -> Vec<Message> {
    let mut first = Message::user("secret question");
    first.author = Some("secret author".to_owned());
    first.metadata.insert("secret name".to_owned(), "secret value".into());
    let call = |id: &str| ToolCall::new(id, "look", r#"{"where": "secret place"}"#);
    let waiting = ApprovalRequest::new("request 1", call("call_3"), true);
    let asking = vec![
        Part::text("secret thought"),
        Part::ToolCall(call("call_1")),
        Part::ToolCall(call("call_2")),
        Part::ApprovalRequest(waiting),
        Part::text("secret afterthought"),
    ];
    let results = ["call_1", "call_2"].map(|id| ToolResult::new(id, format!("secret {id}")));
    vec![first, Message::new(Role::Assistant, asking), Message::tool_results(results)]
}

/// Returns the rows of the calls in [`messages`]: one with its result in a message, one with its
/// result in the record, and one without a result, whose call waits for approval.
pub(crate) fn rows() -> Vec<ToolRecord> {
    let mut in_message = row(2, 0, ToolStatus::Ok);
    in_message.result = RecordedResult::InMessage(SequencePosition { sequence: 3, index: 0 });
    let mut apart = row(2, 1, ToolStatus::Error);
    apart.result = RecordedResult::Apart(Box::new(ToolResult::error("call_2", "secret apart")));
    apart.error = Some("secret error".to_owned());
    vec![in_message, apart, row(2, 2, ToolStatus::PendingApproval)]
}

/// Returns the properties of a write that leaves a run open, with the text of an unfinished answer.
pub(crate) fn staged(text: &str) -> Staged {
    let renewed_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let lease = Lease { attempt: 1, holder: 1, renewed_at, until: LeaseEnd::NotHeld };
    Staged { lease, close: None, service_id: None, partial_text: Some(text.into()) }
}

/// Creates an inner store that contains these messages with their ids, and this head, as a writer
/// without the key could do.
pub(crate) async fn forge(
    key: &ConversationKey,
    messages: Vec<Message>,
    head: Option<Arc<str>>,
    tools: Vec<ToolRecord>,
) -> Store {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    let mut at = Revision::ABSENT;
    let last = messages.len().saturating_sub(1);
    for (position, message) in messages.into_iter().enumerate() {
        let id = message.id.unwrap();
        let mut write = Write::new(key.clone(), id, at, [Arc::new(message)]);
        if let Some(head) = head.clone().filter(|_| position == 0) {
            write = write.with_service_id(ServiceIdChange::Set(head));
        }
        if position == last {
            write = write.with_tools(tools.clone());
        }
        at = append(store.inner(), write).await;
    }
    store
}

/// Returns the messages of a conversation in the inner store, and its head.
pub(crate) async fn sealed(
    store: &Store,
    key: &ConversationKey,
) -> (Vec<Message>, Option<Arc<str>>) {
    let history = store.inner().load(key).await.unwrap();
    let messages = history.messages.iter().map(|message| (**message).clone()).collect();
    (messages, history.head.service_id)
}

pub(crate) fn encryption_error(error: &StoreError) -> &EncryptionError {
    EncryptionError::in_store_error(error).expect("an error of the encryption")
}
