//! Tests of rules of the store contract that need a file, and a comparison with the store in
//! memory.

use std::sync::Arc;

use crate::common::{append, key, texts, write};
use tempfile::TempDir;
use tower_chat_core::{
    ConversationKey, Media, MediaSource, MemoryStore, Message, MessageId, Native, Part, RawJson,
    Reasoning, Role, RunId, Text, ToolCall, ToolResult,
    store::{
        Directory, HistoryStore, Maintenance, Revision, ServiceIdChange, StoreError, author::Write,
    },
};
use tower_chat_sqlite::SqliteStore;

async fn open() -> (TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    (folder, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_was_never_written_is_empty() {
    let (_folder, store) = open().await;
    let history = store.load(&key("c")).await.unwrap();
    assert!(history.messages.is_empty());
    assert_eq!(history.head.revision, Revision::ABSENT);
    assert_eq!(store.head(&key("c")).await.unwrap(), history.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_message_is_loaded_unchanged() {
    let (folder, store) = open().await;
    let item = r#"{"z" : 1, "id":"x","a":[2.50]}"#.parse::<RawJson>().unwrap();
    let mut text = Text::new("text with \0, \u{2028}, 😀 and 'quotes'");
    text.native = Some(Native::new("openai", item));
    let call = ToolCall::new("call_1", "weather", "{\"city\": \"Pa");
    let media = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    let mut message = Message::new(
        Role::Assistant,
        vec![Part::Text(text), Part::Reasoning(Reasoning::new("hm")), call.into(), media.into()],
    );
    message.author = Some("model".into());
    message.metadata.insert("k".into(), serde_json::json!({"deep": [1, null, 2.5]}));
    let result = ToolResult::error("", "failed");
    let messages: Vec<Arc<Message>> = vec![
        message.into(),
        Message::tool_results([result]).into(),
        Message::new(Role::User, vec![]).into(),
    ];
    let id = MessageId { run: RunId::new(), index: 7 };
    let write = Write::new(key("c"), id, Revision::ABSENT, messages);
    append(&store, vec![write.clone()]).await.unwrap();
    store.close().await.unwrap();
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let history = store.load(&key("c")).await.unwrap();
    let loaded: Vec<_> = history.messages.iter().cloned().collect();
    assert_eq!(loaded, write.messages());
    assert_eq!(loaded[1].id, Some(MessageId { run: id.run, index: 8 }));
    assert_eq!(history.head.revision, write.result());
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_and_ids_may_contain_any_characters() {
    let (_folder, store) = open().await;
    let long = "k".repeat(10_000);
    let halves = ["", "a", "a/b", "b", "a\0b", "a\0", "'; DROP TABLE messages; --", "ä😀", &long];
    let mut written = Vec::new();
    for scope in halves {
        for id in halves {
            let key = ConversationKey::new(scope, id);
            let text = format!("{scope:?} {id:?}");
            let write = write(&key, RunId::new(), Revision::ABSENT, &[&text]);
            append(&store, vec![write]).await.unwrap();
            written.push((key, text));
        }
    }
    for (key, text) in &written {
        assert_eq!(texts(&store, key).await, [text.as_str()]);
    }
    let mut sorted: Vec<&str> = halves.to_vec();
    sorted.sort_unstable();
    assert_eq!(store.scopes(None, 100).await.unwrap(), sorted);
    for scope in halves {
        let listed = store.list(scope, None, usize::MAX).await.unwrap();
        let ids: Vec<_> = listed.iter().map(|key| key.id()).collect();
        assert_eq!(ids, sorted);
        assert!(listed.iter().all(|key| key.scope() == scope));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_continues_after_an_id_and_stops_at_the_limit() {
    let (_folder, store) = open().await;
    for id in ["b", "a", "", "c"] {
        let write = write(&key(id), RunId::new(), Revision::ABSENT, &["text"]);
        append(&store, vec![write]).await.unwrap();
    }
    let list = |after, limit| {
        let store = store.clone();
        async move {
            let keys = store.list("tests", after, limit).await.unwrap();
            keys.iter().map(|key| key.id().to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(list(None, 2).await, ["", "a"]);
    assert_eq!(list(Some(""), 2).await, ["a", "b"]);
    assert_eq!(list(Some("a\u{1}"), 9).await, ["b", "c"]);
    assert!(list(Some("c"), 9).await.is_empty());
    assert!(list(None, 0).await.is_empty());
    assert!(store.list("other", None, 9).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_stops_at_its_first_failure() {
    let (_folder, store) = open().await;
    let run = RunId::new();
    let one = write(&key("c"), run, Revision::ABSENT, &["one"]);
    let wrong = write(&key("c"), run, Revision { sequence: 9, ..one.result() }, &["wrong"]);
    let never = write(&key("d"), run, Revision::ABSENT, &["never"]);
    let error = append(&store, vec![one.clone(), wrong, never]).await.unwrap_err();
    assert_eq!(error.completed, 1);
    let StoreError::Conflict(conflict) = error.source else { panic!("{:?}", error.source) };
    assert_eq!((conflict.key, conflict.found), (key("c"), one.result()));
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    assert!(texts(&store, &key("d")).await.is_empty());
    assert_eq!(append(&store, vec![]).await.unwrap(), Revision::ABSENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_conversation_is_empty_and_gets_another_incarnation_when_it_begins_again() {
    let (_folder, store) = open().await;
    let old = write(&key("c"), RunId::new(), Revision::ABSENT, &["old"]);
    let kept = write(&key("d"), RunId::new(), Revision::ABSENT, &["kept"]);
    append(&store, vec![old.clone(), kept]).await.unwrap();
    assert!(store.delete(&key("c")).await.unwrap());
    assert!(!store.delete(&key("c")).await.unwrap());
    assert!(texts(&store, &key("c")).await.is_empty());
    assert_eq!(store.list("tests", None, 9).await.unwrap(), [key("d")]);
    let stale = write(&key("c"), RunId::new(), old.result(), &["stale"]);
    let error = append(&store, vec![stale.clone()]).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Conflict(c) if c.found == Revision::ABSENT));
    let new = write(&key("c"), RunId::new(), Revision::ABSENT, &["new"]);
    append(&store, vec![new.clone()]).await.unwrap();
    assert_ne!(new.result().incarnation, old.result().incarnation);
    assert_eq!(new.result().sequence, old.result().sequence);
    let error = append(&store, vec![stale]).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Conflict(c) if c.found == new.result()));
    assert_eq!(texts(&store, &key("c")).await, ["new"]);
    assert_eq!(texts(&store, &key("d")).await, ["kept"]);
}

fn change(expected: Revision, run: RunId, change: ServiceIdChange) -> Write {
    write(&key("c"), run, expected, &[]).with_service_id(change)
}

fn set(id: &str) -> ServiceIdChange {
    ServiceIdChange::Set(id.into())
}

/// Executes a list of writes, with every kind of write in every state of a conversation, and
/// compares each outcome with that of the store in memory.
#[tokio::test(flavor = "multi_thread")]
async fn every_write_has_the_same_outcome_as_in_the_memory_store() {
    let (_folder, store) = open().await;
    let memory = MemoryStore::new();
    let (run, other) = (RunId::new(), RunId::new());
    let made = change(Revision::ABSENT, run, set("first"));
    let one = write(&key("c"), run, made.result(), &["one", "two"]);
    let two = write(&key("c"), run, one.result(), &["three"]).with_service_id(set("second"));
    let incarnation = one.result().incarnation;
    let at = |sequence| Revision { incarnation, sequence };
    let script = vec![
        // Writes to a conversation that does not exist.
        write(&key("c"), run, at(0), &["early"]),
        change(at(0), run, set("early")),
        // A change of the service id creates the conversation. Its repetition and changes by
        // another run follow.
        made.clone(),
        made.clone(),
        change(Revision::ABSENT, other, set("other")),
        change(at(0), other, ServiceIdChange::Clear),
        change(at(0), other, set("first")),
        // Writes of messages, and repetitions of these writes.
        one.clone(),
        one.clone(),
        write(&key("c"), run, made.result(), &["one"]),
        write(&key("c"), other, made.result(), &["one", "two"]),
        two.clone(),
        one.clone(),
        two.clone(),
        // A write at the position of a stored message with another index in the run, and a write
        // with a stored message id at another position.
        Write::new(
            key("c"),
            MessageId { run, index: 9 },
            one.result(),
            [Message::user("three").into()],
        ),
        write(&key("c"), run, at(1), &["two"]),
        // Writes that expect that the conversation does not exist, by the run that has created it
        // and by another run.
        write(&key("c"), run, Revision::ABSENT, &["one", "two"]),
        write(&key("c"), other, Revision::ABSENT, &["one", "two"]),
        write(&key("c"), run, Revision { incarnation: incarnation ^ 1, sequence: 0 }, &["one"]),
        // A repeated write does not change the service id again.
        change(two.result(), run, set("third")),
        two.clone(),
        change(at(1), run, set("late")),
        change(at(2), run, set("late")),
        change(two.result(), run, ServiceIdChange::Clear),
        Write::new(
            key("c"),
            MessageId { run, index: 0 },
            at(u64::MAX - 9),
            [Message::user("far").into()],
        ),
        write(&key("c"), other, at(3), &[]),
        write(&key("c"), other, at(3), &["four"]),
    ];
    for (number, write) in script.into_iter().enumerate() {
        let ours = append(&store, vec![write.clone()]).await;
        let theirs = append(&memory, vec![write.clone()]).await;
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "step {number}: {write:?}");
        let (ours, theirs) =
            (store.load(&key("c")).await.unwrap(), memory.load(&key("c")).await.unwrap());
        assert_eq!(ours.head, theirs.head, "step {number}: {write:?}");
        assert_eq!(ours.messages, theirs.messages, "step {number}: {write:?}");
        assert_eq!(store.head(&key("c")).await.unwrap(), ours.head);
    }
    assert_eq!(texts(&store, &key("c")).await, ["one", "two", "three", "four"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_of_a_store_is_the_same_store_and_a_second_opened_store_is_not() {
    let (folder, store) = open().await;
    let clone = store.clone();
    assert!(clone.handle().is_same_store(store.handle()));
    let other = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    assert!(!other.handle().is_same_store(store.handle()));
    let one = write(&key("c"), RunId::new(), Revision::ABSENT, &["one"]);
    append(&clone, vec![one]).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    assert_eq!(texts(&other, &key("c")).await, ["one"]);
}
