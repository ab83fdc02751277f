//! Tests of loading a part of a conversation.

use std::sync::Arc;

use tower_chat_core::store::{
    HistoryStore as _, Revision,
    author::{LAST_SEQUENCE, LoadFrom},
};
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::store_contract::{self, Store};

use crate::common::{
    append, key, open, options, ordinary_user, quoted, raw, schema, server, texts, write,
};

fn range(leading: u64, after: u64) -> Arc<LoadFrom> {
    Arc::new(LoadFrom { leading, after, applies_to: "any\0\"".to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_selected_messages_are_loaded() {
    let store: Store = Arc::new(open(options()).await);
    assert!(store_contract::loads_ranges(&store).await);
    let divided = options().with_partitions(3).with_row_level_security(true);
    let store: Store = Arc::new(divided.connect(&ordinary_user().await).await.unwrap());
    assert!(store_contract::loads_ranges(&store).await);
}

/// The first write calls the function, and later writes are plain appends.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_append_sets_the_range() {
    let store = open(options()).await;
    let mut at = Revision::ABSENT;
    for sequence in 1..=4 {
        let from = Some(range(0, sequence));
        let next = write(&key("c"), at, &["text"]);
        at = append(&store, next.with_load_from(from.clone())).await.unwrap();
        assert_eq!(store.head(&key("c")).await.unwrap().load_from, from);
    }
    append(&store, write(&key("c"), at, &["text"])).await.unwrap();
    assert_eq!(store.head(&key("c")).await.unwrap().load_from, Some(range(0, 4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_with_a_range_that_was_damaged_in_the_table_returns_all_messages() {
    let damages = [
        "'{}'",
        "'none'",
        "replace(load_from, '2', '200')",
        "replace(load_from, '\"leading\":0', '\"leading\":3')",
        "NULL",
    ];
    let schema = schema();
    let store = open(PostgresStore::options().with_schema(&schema)).await;
    let client = raw(&server().address("postgres")).await;
    for (number, damaged) in damages.into_iter().enumerate() {
        let (key, from) = (key(&format!("{number}")), range(0, 2));
        let first = write(&key, Revision::ABSENT, &["one", "two", "three"]);
        append(&store, first.with_load_from(Some(from.clone()))).await.unwrap();
        let sql = format!(
            "UPDATE {}.conversations SET load_from = {damaged} WHERE conversation = $1",
            quoted(&schema)
        );
        assert_eq!(client.execute(&sql, &[&key.id().as_bytes()]).await.unwrap(), 1);
        let found = store.head(&key).await.unwrap().load_from;
        let tried = [range(0, 2), range(0, 200), range(3, 2), range(0, LAST_SEQUENCE + 1)];
        for from in found.into_iter().chain(tried) {
            let loaded = store.load_from(&key, &from).await.unwrap();
            assert!(loaded.is_whole(), "{damaged} with {from:?}");
            assert_eq!(loaded.messages.len(), 3, "{damaged} with {from:?}");
        }
        assert_eq!(texts(&store, &key).await, ["one", "two", "three"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_a_range_fails_if_a_selected_message_is_missing() {
    for (missing, is_selected) in [(1, true), (2, false), (4, false), (5, true), (6, true)] {
        let schema = schema();
        let store = open(PostgresStore::options().with_schema(&schema)).await;
        let from = range(1, 4);
        let first = write(&key("c"), Revision::ABSENT, &["1", "2", "3", "4", "5", "6"]);
        append(&store, first.with_load_from(Some(from.clone()))).await.unwrap();
        let client = raw(&server().address("postgres")).await;
        let sql = format!("DELETE FROM {}.messages WHERE sequence = $1", quoted(&schema));
        assert_eq!(client.execute(&sql, &[&i64::from(missing)]).await.unwrap(), 1);
        store.load(&key("c")).await.unwrap_err();
        assert_eq!(store.load_from(&key("c"), &from).await.is_err(), is_selected, "{missing}");
    }
}
