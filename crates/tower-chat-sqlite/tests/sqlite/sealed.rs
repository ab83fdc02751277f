//! Tests that a file with sealed data refuses changes that do not come from the store wrapper that
//! seals the data.

use std::{path::Path, sync::Arc};

use crate::common::{append, key};
use rusqlite::Connection;
use tower_chat_core::{
    ConversationKey, Message, MessageId, Native, Part, RawJson, Role, RunId,
    store::{HistoryStore, Revision, ServiceIdChange, StoreError, author::Write},
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::store_contract::{self, Store};

fn write(key: &ConversationKey, expected: Revision, messages: Vec<Message>) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, messages.into_iter().map(Into::into))
}

#[tokio::test]
async fn plain_changes_are_refused_once_a_sealed_write_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let open = async || {
        let store: Store = Arc::new(SqliteStore::open(&path).await.unwrap());
        store
    };
    store_contract::plain_changes_are_refused_once_a_sealed_write_is_stored(open).await;
}

#[tokio::test]
async fn a_store_that_has_refused_a_sealed_write_accepts_the_next_sealed_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let first = write(&key("c"), Revision::ABSENT, vec![Message::user("one")]).sealed();
    let at = first.result();
    append(&store, vec![first]).await.unwrap();
    let stale = write(&key("c"), Revision::ABSENT, vec![Message::user("stale")]).sealed();
    let error = append(&store, vec![stale]).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    append(&store, vec![write(&key("c"), at, vec![Message::user("two")]).sealed()]).await.unwrap();
}

/// Changes the schema of a file to version 6, which does not record whether a file contains sealed
/// data.
fn make_older(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let to_version_6 = "
        DROP TABLE store_marks;
        DROP TRIGGER conversation_with_summaries_deleted;
        DROP TABLE history_summaries;
        ALTER TABLE conversations DROP COLUMN rewrites;
        ALTER TABLE conversations DROP COLUMN load_from;
        DROP INDEX branches;
        ALTER TABLE conversations DROP COLUMN parent_position;
        ALTER TABLE conversations DROP COLUMN parent_conversation;
        ALTER TABLE conversations DROP COLUMN parent_scope;
        PRAGMA user_version = 6;";
    connection.execute_batch(to_version_6).unwrap();
}

fn envelope(role: Role) -> Message {
    let item: RawJson = "\"tower-chat-1:k:1:0:AAAA\"".parse().unwrap();
    Message::new(role, vec![Part::from(Native::new("tower-chat-encrypted", item))])
}

#[tokio::test]
async fn a_migrated_file_refuses_plain_writes_if_it_contains_sealed_data() {
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
