//! Everything that a store promises.
#![allow(clippy::unwrap_used, reason = "in the opening of a test too")]

use tower_chat_sqlite::SqliteStore;

tower_chat_testkit::store_contract!(
    let folder = tempfile::tempdir().unwrap();
    SqliteStore::open(folder.path().join("chat.db")).await.unwrap()
);
