//! Tests that values of the formats `tower-chat-1` and `tower-chat-2` still open.

use std::sync::Arc;

use tower_chat_core::{
    MemoryStore, Message, MessageId, RunId, ToolStatus, format,
    store::{
        HistoryStore, InvocationQuery, Maintenance, Revision, Rewrite, SequencePosition,
        ServiceIdChange, ToolCallQueries,
        author::{RecordedResult, Write},
    },
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError};

use crate::common::{Store, append, encryption_error, key, keys, messages, row, rows, write};

/// Returns a store with a conversation that a release of the first format has written: its
/// messages, a result in the record, and the error in the row of this result.
async fn former() -> Store {
    let stored = include_str!("../fixtures/former_values.txt");
    let lines: Vec<&str> = stored.lines().collect();
    let messages = lines[..3].iter().map(|line| Arc::new(format::decode(line).unwrap()));
    let mut rows = rows();
    let result = serde_json::from_str(lines[3]).unwrap();
    rows[1].result = RecordedResult::Apart(Box::new(result));
    rows[1].error = Some(lines[4].to_owned());
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    let first = MessageId { run: RunId::from_bytes([3; 16]), index: 0 };
    let write = Write::new(key(), first, Revision::ABSENT, messages).with_tools(rows);
    append(store.inner(), write).await;
    store
}

async fn parts(store: &Store) -> Vec<Message> {
    let loaded = store.load(&key()).await.unwrap().messages;
    let without_id = |message: &Arc<Message>| {
        let mut message = (**message).clone();
        message.id = None;
        message
    };
    loaded.iter().map(without_id).collect()
}

#[tokio::test]
async fn values_of_the_first_format_open_and_their_conversation_can_be_continued() {
    let store = former().await;
    let known = messages();
    assert_eq!(parts(&store).await, known);
    let recorded = store.invocations(&InvocationQuery::of(&key())).await.unwrap();
    assert_eq!((recorded.found.len(), recorded.unreadable.len()), (3, 0), "{recorded:?}");
    assert_eq!(recorded.found[1].1.error.as_deref(), Some("secret error"));
    assert_eq!(recorded.found[0].1.result.as_ref().unwrap().text(), "secret call_1");

    let at = store.head(&key()).await.unwrap().revision;
    append(&store, write(&key(), at, [Message::user("sealed anew")])).await;
    let other = EncryptedStore::new(store.inner().clone(), keys());
    assert_eq!(parts(&other).await, [&known[..], &[Message::user("sealed anew")]].concat());
    let recorded = other.invocations(&InvocationQuery::of(&key())).await.unwrap();
    assert_eq!((recorded.found.len(), recorded.unreadable.len()), (3, 0), "{recorded:?}");
}

#[tokio::test]
async fn values_of_the_first_format_are_refused_with_without_former_values() {
    let store = former().await;
    let strict = || EncryptedStore::new(store.inner().clone(), keys()).without_former_values();
    let at = store.head(&key()).await.unwrap().revision;
    for is_written in [false, true] {
        if is_written {
            append(&store, write(&key(), at, [Message::user("sealed anew")])).await;
        }
        let error = strict().load(&key()).await.unwrap_err();
        let error = encryption_error(&error);
        assert!(matches!(error, EncryptionError::FormerValues { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_message_of_the_third_format_that_was_replaced_with_one_of_the_first_is_refused() {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    append(&store, write(&key(), Revision::ABSENT, messages())).await;
    let (mut sealed, head) = crate::common::sealed(&store, &key()).await;
    let (former, _) = crate::common::sealed(&former().await, &key()).await;
    sealed[0].parts = former[0].parts.clone();
    let forged = crate::common::forge(&key(), sealed, head, Vec::new()).await;
    let error = forged.load(&key()).await.unwrap_err();
    assert!(encryption_error(&error).to_string().contains("a former format"), "{error:?}");
}

#[tokio::test]
async fn a_rewrite_of_the_first_format_seals_in_the_third_and_other_messages_stay_readable() {
    let store = former().await;
    let found = store.rows(&key()).await.unwrap().unwrap();
    assert!(found.messages.iter().all(|(_, message)| message.is_ok()));
    let tools: Vec<_> = found.tools.into_iter().map(|(_, row)| row.unwrap()).collect();
    assert_eq!(tools, rows());
    let mut rewrite = Rewrite::new(key(), found.head.revision);
    rewrite.messages.push((1, Message::user("rewritten")));
    store.rewrite(rewrite).await.unwrap();
    let elsewhere = EncryptedStore::new(store.inner().clone(), keys());
    let history = elsewhere.load(&key()).await.unwrap();
    assert_eq!(history.messages.get(0).map(|message| message.text()), Some("rewritten".into()));
    assert_eq!(history.messages.len(), 3);
    let service_id = store.inner().head(&key()).await.unwrap().service_id.unwrap();
    assert!(service_id.starts_with("tower-chat-3:"), "it has a sealed head: {service_id}");
}

/// Returns a store with a conversation that a release of the second format has written: its
/// messages, the row of its call, and its sealed head.
async fn second() -> Store {
    let stored = include_str!("../fixtures/second_values.txt");
    let lines: Vec<&str> = stored.lines().collect();
    let messages = lines[..4].iter().map(|line| Arc::new(format::decode(line).unwrap()));
    let mut row = row(2, 0, ToolStatus::Ok);
    row.result = RecordedResult::InMessage(SequencePosition { sequence: 3, index: 0 });
    row.error = Some(lines[4].to_owned());
    let run: RunId = "01a21571-4f4b-7166-a56f-e8498fe39dcb".parse().unwrap();
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    let write = Write::new(key(), MessageId { run, index: 0 }, Revision::ABSENT, messages)
        .with_tools(vec![row])
        .with_service_id(ServiceIdChange::Set(lines[5].into()));
    append(store.inner(), write).await;
    store
}

async fn second_texts(store: &Store) -> Vec<String> {
    let loaded = store.load(&key()).await.unwrap().messages;
    loaded.iter().map(|message| message.text()).collect()
}

const SECOND: [&str; 4] = ["secret question", "", "", "secret answer"];

#[tokio::test]
async fn values_of_the_second_format_open_and_their_conversation_can_be_continued() {
    let store = second().await;
    assert_eq!(second_texts(&store).await, SECOND);
    let recorded = store.invocations(&InvocationQuery::of(&key())).await.unwrap();
    assert_eq!((recorded.found.len(), recorded.unreadable.len()), (1, 0), "{recorded:?}");
    let head = store.head(&key()).await.unwrap();
    assert_eq!(head.service_id, None);
    let mut at = head.revision;
    for text in ["five", "six"] {
        at = append(&store, write(&key(), at, [Message::user(text)])).await;
    }
    let other = EncryptedStore::new(store.inner().clone(), keys());
    assert_eq!(second_texts(&other).await, [&SECOND[..], &["five", "six"]].concat());
    let recorded = other.invocations(&InvocationQuery::of(&key())).await.unwrap();
    assert_eq!((recorded.found.len(), recorded.unreadable.len()), (1, 0), "{recorded:?}");
    let rows = other.rows(&key()).await.unwrap().unwrap();
    assert!(rows.messages.iter().all(|(_, message)| message.is_ok()));
    assert!(rows.tools.iter().all(|(_, row)| row.is_ok()));
    at = append(&other, write(&key(), at, [Message::user("seven")])).await;
    let mut rewrite = Rewrite::new(key(), at);
    rewrite.messages.push((1, Message::user("rewritten")));
    other.rewrite(rewrite).await.unwrap();
    let texts = second_texts(&store).await;
    assert_eq!((texts.len(), texts[0].as_str(), texts[6].as_str()), (7, "rewritten", "seven"));
}

#[tokio::test]
async fn values_of_the_second_format_are_refused_with_without_former_values() {
    let store = second().await;
    let at = store.head(&key()).await.unwrap().revision;
    for is_written in [false, true] {
        if is_written {
            append(&store, write(&key(), at, [Message::user("five")])).await;
        }
        let strict = EncryptedStore::new(store.inner().clone(), keys()).without_former_values();
        let error = strict.load(&key()).await.unwrap_err();
        let error = encryption_error(&error);
        assert!(matches!(error, EncryptionError::FormerValues { .. }), "{error:?}");
    }
}

/// The head of the second format contains no data of a chain.
#[tokio::test]
async fn an_older_head_does_not_open_messages_of_the_third_format() {
    let store = second().await;
    let older = store.inner().head(&key()).await.unwrap().service_id.unwrap();
    let at = store.head(&key()).await.unwrap().revision;
    let at = append(&store, write(&key(), at, [Message::user("five")])).await;
    let back = write(&key(), at, []).with_service_id(ServiceIdChange::Set(older));
    append(store.inner(), back).await;
    let error = store.load(&key()).await.unwrap_err();
    assert!(encryption_error(&error).to_string().contains("older one"), "{error:?}");
}
