//! Tests that caches in several processes, which wrap stores of one database, return no stale data.

use crate::common::{key, open, schema, write};
use tower_chat_cache::CachingStore;
use tower_chat_core::{
    ConversationKey,
    store::{
        HistoryStore, Revision, StoreError,
        author::{AppendError, Write},
    },
};
use tower_chat_postgres::PostgresStore;

type Cache = CachingStore<PostgresStore>;

/// Opens two stores of one schema, which share nothing but the database, like two processes.
async fn two() -> [Cache; 2] {
    let options = PostgresStore::options().with_schema(schema()).with_max_connections(2);
    [CachingStore::new(open(options.clone()).await), CachingStore::new(open(options).await)]
}

async fn append(store: &Cache, write: Write) -> Result<Revision, AppendError> {
    store.append(store.reserve().await.unwrap(), vec![write]).await
}

async fn texts(store: &Cache, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.unwrap();
    assert_eq!(history.head.revision, store.head(key).await.unwrap().revision);
    history.messages.iter().map(|message| message.text()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_two_caching_stores_loads_the_writes_of_the_other_at_once() {
    let stores = two().await;
    let key = key("shared");
    let mut revision = Revision::ABSENT;
    let mut expected = Vec::new();
    for number in 0..30 {
        // One store sometimes writes several times consecutively.
        let writer = &stores[usize::from(number % 5 < 2)];
        let text = number.to_string();
        revision = append(writer, write(&key, revision, &[&text])).await.unwrap();
        expected.push(text);
        for store in &stores {
            assert_eq!(texts(store, &key).await, expected);
        }
    }
    for store in &stores {
        assert!(store.statistics().revalidated > 0, "{:?}", store.statistics());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caching_store_loads_a_conversation_that_another_store_has_created_again() {
    let [one, other] = two().await;
    let key = key("anew");
    append(&one, write(&key, Revision::ABSENT, &["old"])).await.unwrap();
    assert_eq!(texts(&one, &key).await, ["old"]);
    assert!(other.delete(&key).await.unwrap());
    assert_eq!(texts(&one, &key).await, Vec::<String>::new());
    // Only the incarnations of the new and the deleted conversation differ.
    append(&other, write(&key, Revision::ABSENT, &["new"])).await.unwrap();
    assert_eq!(texts(&one, &key).await, ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_at_an_outdated_revision_conflicts_and_the_next_load_is_current() {
    let [one, other] = two().await;
    let key = key("conflict");
    let seen = append(&one, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
    append(&other, write(&key, seen, &["b"])).await.unwrap();
    let error = append(&one, write(&key, seen, &["c"])).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    for store in [&one, &other] {
        assert_eq!(texts(store, &key).await, ["a", "b"]);
    }
}
