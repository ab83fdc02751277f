//! Tests that a file with sealed data accepts only changes of the wrapper that seals the data.

use std::path::Path;

use crate::common::{append, key, texts};
use rusqlite::Connection;
use tower_chat_core::{
    ConversationKey, Message, MessageId, Native, Part, RawJson, Role, RunId,
    store::{
        Description, HistoryStore, Keep, Revision, Rewrite, ServiceIdChange, StoreError,
        author::Write,
    },
};
use tower_chat_sqlite::SqliteStore;

fn write(key: &ConversationKey, expected: Revision, messages: Vec<Message>) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, messages.into_iter().map(Into::into))
}

/// Writes three runs of one message each, marked as sealed.
async fn sealed(store: &SqliteStore, key: &ConversationKey) -> Revision {
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        let write = write(key, at, vec![Message::user(text)]).sealed();
        at = write.result();
        append(store, vec![write]).await.unwrap();
    }
    at
}

/// Tries every change without the mark, and expects that it is refused.
async fn assert_takes_no_plain_change(store: &SqliteStore, at: Revision) {
    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.messages.push((1, Message::user("changed")));
    let description = Description::new().with_title("title").unwrap();
    let plain = |key: &ConversationKey, at| write(key, at, vec![Message::user("plain")]);
    let refused = [
        append(store, vec![plain(&key("c"), at)]).await.unwrap_err().source,
        append(store, vec![plain(&key("new"), Revision::ABSENT)]).await.unwrap_err().source,
        store.prune(&key("c"), Keep::Messages(1)).await.unwrap_err(),
        store.fork(&key("c"), &key("copy")).await.unwrap_err(),
        store.rewrite(rewrite).await.unwrap_err(),
        store.set_description(&key("c"), &description, 0).await.unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, StoreError::Sealed), "{error:?}");
        assert!(!error.is_retryable());
    }
    assert_eq!(texts(store, &key("c")).await, ["one", "two", "three"]);
    assert_eq!(store.head(&key("c")).await.unwrap().revision, at);
    assert_eq!(store.scopes(None, 9).await.unwrap(), [key("c").scope()]);
    assert_eq!(store.list(key("c").scope(), None, 9).await.unwrap(), [key("c")]);
}

#[tokio::test]
async fn plain_changes_are_refused_once_a_sealed_write_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let store = SqliteStore::open(&path).await.unwrap();
    // Another process has opened the file before.
    let other = SqliteStore::open(&path).await.unwrap();
    append(&other, vec![write(&key("plain"), Revision::ABSENT, vec![Message::user("hi")])])
        .await
        .unwrap();
    assert!(other.delete(&key("plain")).await.unwrap());
    let at = sealed(&store, &key("c")).await;
    assert_takes_no_plain_change(&store, at).await;
    assert_takes_no_plain_change(&other, at).await;
    store.close().await.unwrap();
    other.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    assert_takes_no_plain_change(&store, at).await;

    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.is_sealed = true;
    rewrite.messages.push((3, Message::user("changed")));
    store.rewrite(rewrite).await.unwrap();
    assert_eq!(store.prune(&key("c"), Keep::Messages(1).sealed()).await.unwrap().messages, 2);
    store.set_description(&key("c"), &Description::new().sealed(), 0).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["changed"]);
    assert!(store.delete(&key("c")).await.unwrap(), "a deletion needs no keys");
}

#[tokio::test]
async fn a_sealed_write_that_is_not_stored_is_tried_again_after_a_rollback() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let at = sealed(&store, &key("c")).await;
    // The write is refused, and the file still accepts sealed writes.
    let stale = write(&key("c"), Revision::ABSENT, vec![Message::user("stale")]).sealed();
    let error = append(&store, vec![stale]).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    append(&store, vec![write(&key("c"), at, vec![Message::user("four")]).sealed()]).await.unwrap();
}

/// Removes the mark, as in a file of version 6.
fn make_older(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("DROP TABLE store_marks; PRAGMA user_version = 6").unwrap();
}

fn envelope(role: Role) -> Message {
    let item: RawJson = "\"tower-chat-1:k:1:0:AAAA\"".parse().unwrap();
    Message::new(role, vec![Part::from(Native::new("tower-chat-encrypted", item))])
}

#[tokio::test]
async fn a_file_of_an_older_version_is_marked_if_it_holds_sealed_data() {
    let head = ServiceIdChange::Set("tower-chat-2:k:AAAA".into());
    let id = ServiceIdChange::Set("resp_1".into());
    let quoted = Message::user("what is \"tower-chat-encrypted\"? tower-chat-1:");
    let tried = [
        (vec![Message::user("plain")], id, false),
        (vec![quoted.clone()], ServiceIdChange::Clear, false),
        (vec![Message::user("x")], head, true),
        (vec![quoted, envelope(Role::User)], ServiceIdChange::Clear, true),
    ];
    for (messages, change, is_sealed) in tried {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let first = write(&key("c"), Revision::ABSENT, messages).with_service_id(change);
        let at = first.result();
        append(&store, vec![first]).await.unwrap();
        store.close().await.unwrap();
        make_older(&path);
        let store = SqliteStore::open(&path).await.unwrap();
        let plain = append(&store, vec![write(&key("c"), at, vec![Message::user("more")])]).await;
        assert_eq!(plain.is_err(), is_sealed, "{plain:?}");
    }
}
