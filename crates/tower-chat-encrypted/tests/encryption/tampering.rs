//! Tests that a value that was changed does not open.

use tower_chat_core::{
    ApprovalRequest, MemoryStore, Message, Part, ToolStatus, format,
    store::{HistoryStore, Revision},
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError};

use crate::common::{
    Store, append, encryption_error, forge, key, keys, messages, row, rows, sealed, write,
};

/// Creates a store in which a writer to the inner store has changed a message.
async fn changed(number: usize, change: impl FnOnce(&mut Message)) -> Store {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    append(&store, write(&key(), Revision::ABSENT, messages()).with_tools(rows())).await;
    let (mut messages, head) = sealed(&store, &key()).await;
    change(&mut messages[number]);
    forge(&key(), messages, head, vec![row(2, 2, ToolStatus::PendingApproval)]).await
}

async fn refused(store: &Store) -> EncryptionError {
    let error = store.load(&key()).await.unwrap_err();
    assert!(!error.is_retryable());
    match encryption_error(&error) {
        EncryptionError::NotOpened { key, sequence, column } => EncryptionError::NotOpened {
            key: key.clone(),
            sequence: *sequence,
            column: column.clone(),
        },
        EncryptionError::NotSealed { key, sequence, column, reason } => {
            EncryptionError::NotSealed {
                key: key.clone(),
                sequence: *sequence,
                column: column.clone(),
                reason,
            }
        }
        other => panic!("unexpected: {other:?}"),
    }
}

fn envelope_arguments(message: &mut Message) -> &mut String {
    match &mut message.parts[1] {
        Part::ToolCall(call) => &mut call.arguments,
        other => panic!("no call: {other:?}"),
    }
}

#[tokio::test]
async fn an_unchanged_copy_of_a_sealed_conversation_opens() {
    let store = changed(0, |_| {}).await;
    assert_eq!(store.load(&key()).await.unwrap().messages.len(), 3);
}

#[tokio::test]
async fn a_change_of_any_character_of_a_sealed_value_is_refused() {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    append(&store, write(&key(), Revision::ABSENT, messages())).await;
    let sealed = store.inner().load(&key()).await.unwrap();
    let arguments = envelope_arguments(&mut (**sealed.messages.get(1).unwrap()).clone()).clone();
    let start = arguments.rfind(':').unwrap() + 1;
    for position in start..arguments.len() {
        let other = if &arguments[position..=position] == "A" { "B" } else { "A" };
        let mut altered = arguments.clone();
        altered.replace_range(position..=position, other);
        let store = changed(1, |message| *envelope_arguments(message) = altered).await;
        refused(&store).await;
    }
}

#[tokio::test]
async fn missing_and_unencrypted_values_are_refused() {
    let clear = changed(0, |message| message.parts = vec![Part::text("forged")]).await;
    assert!(matches!(refused(&clear).await, EncryptionError::NotSealed { sequence: 1, .. }));
    let empty = changed(0, |message| message.parts.clear()).await;
    assert!(matches!(refused(&empty).await, EncryptionError::NotSealed { sequence: 1, .. }));
    let fewer = changed(1, |message| drop(message.parts.pop())).await;
    assert!(matches!(refused(&fewer).await, EncryptionError::NotSealed { sequence: 2, .. }));
    let more = changed(2, |message| message.parts.push(message.parts[1].clone())).await;
    refused(&more).await;
    let in_clear = changed(1, |message| *envelope_arguments(message) = "{}".to_owned()).await;
    assert!(matches!(refused(&in_clear).await, EncryptionError::NotSealed { .. }));
    let role = changed(0, |message| message.role = tower_chat_core::Role::System).await;
    refused(&role).await;
}

fn request(message: &mut Message) -> &mut ApprovalRequest {
    match &mut message.parts[3] {
        Part::ApprovalRequest(request) => request,
        other => panic!("no request: {other:?}"),
    }
}

/// An approval refers to a request by its id. With another id, the approval would approve another
/// call.
#[tokio::test]
async fn a_changed_approval_request_is_refused() {
    let unchanged = changed(1, |_| {}).await;
    let head = unchanged.head(&key()).await.unwrap();
    assert_eq!(head.pending_approvals[0][0].id, "request 1");
    let changes: [fn(&mut ApprovalRequest); 3] = [
        |request| request.id = "request 2".to_owned(),
        |request| request.required = false,
        |request| request.id.clear(),
    ];
    for change in changes {
        let forged = changed(1, |message| change(request(message))).await;
        assert!(matches!(refused(&forged).await, EncryptionError::NotSealed { sequence: 2, .. }));
        let error = forged.head(&key()).await.unwrap_err();
        assert!(matches!(encryption_error(&error), EncryptionError::NotSealed { .. }));
    }
}

#[tokio::test]
async fn another_key_with_the_same_name_opens_no_message() {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    append(&store, write(&key(), Revision::ABSENT, messages())).await;
    let other = tower_chat_encrypted::SecretKey::from_bytes([8; 32]);
    let other = tower_chat_encrypted::MasterKeys::new("first", other).unwrap();
    let store = EncryptedStore::new(store.inner().clone(), other);
    assert!(matches!(refused(&store).await, EncryptionError::NotOpened { .. }));
}

/// A reader of the inner store cannot compare texts.
#[tokio::test]
async fn equal_messages_have_different_sealed_values() {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    append(&store, write(&key(), Revision::ABSENT, [Message::user("1"), Message::user("1")])).await;
    let sealed = store.inner().load(&key()).await.unwrap();
    let stored: Vec<_> = sealed.messages.iter().map(|it| format::encode(it)).collect();
    assert_ne!(stored[0], stored[1]);
}
