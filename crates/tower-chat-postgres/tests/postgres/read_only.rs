//! Tests of a server that is temporarily read-only, as after a failover.

use crate::common::{append, key, options, raw, server, texts, write};
use futures_util::future::join_all;
use tower_chat_core::store::{HistoryStore, Keep, Maintenance, Revision, StoreError};
use tower_chat_postgres::{PostgresOptions, PostgresStore};

const ROLE: &str = "read_only_for_a_while";

async fn as_superuser(sql: &str) {
    raw(&server().address("postgres")).await.batch_execute(sql).await.unwrap();
}

/// Opens a store whose open connections are read-only, as after a failover. New connections are
/// writable.
async fn taken_over(options: PostgresOptions) -> PostgresStore {
    as_superuser(&format!("ALTER ROLE {ROLE} SET default_transaction_read_only = on")).await;
    let store = options.connect(&server().address_for(ROLE, "postgres")).await.unwrap();
    let key = key("a");
    for head in join_all((0..8).map(|_| store.head(&key))).await {
        head.unwrap();
    }
    as_superuser(&format!("ALTER ROLE {ROLE} RESET default_transaction_read_only")).await;
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_write_on_a_read_only_connection_the_next_write_uses_another_connection() {
    as_superuser(&format!("CREATE ROLE {ROLE} LOGIN; GRANT CREATE ON DATABASE postgres TO {ROLE}"))
        .await;
    let options = options();
    let store = options.clone().connect(&server().address_for(ROLE, "postgres")).await.unwrap();
    let (one, other) = (key("a"), key("b"));
    let revision = append(&store, write(&one, Revision::ABSENT, &["1"])).await.unwrap();

    let store = taken_over(options.clone()).await;
    let second = write(&one, revision, &["2"]);
    let error = append(&store, second.clone()).await.unwrap_err().source;
    assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
    append(&store, second).await.unwrap();

    let store = taken_over(options.clone()).await;
    let error = store.fork_at(&one, None, &other).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
    store.fork_at(&one, None, &other).await.unwrap();
    assert_eq!(texts(&store, &other).await, ["1", "2"]);

    let store = taken_over(options).await;
    let error = store.prune(&one, Keep::Messages(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
    assert_eq!(store.prune(&one, Keep::Messages(1)).await.unwrap().messages, 1);
}
