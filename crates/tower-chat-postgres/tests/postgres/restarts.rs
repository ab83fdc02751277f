//! Tests of a server that is stopped during writes and started again.

use std::{sync::LazyLock, time::Duration};

use crate::common::{append, key, options, start, texts, write};
use tokio::sync::Mutex;
use tower_chat_core::store::{Revision, StoreError};
use tower_chat_testkit::server::{PostgresServer, writes_through_outages};

/// A server that only these tests use, because they stop it.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(start);
/// Lets one test at a time use the server.
static IN_USE: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_the_server_during_writes_lose_and_duplicate_no_write() {
    outages_in_the_middle_of_writes(PostgresServer::crash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_the_server_during_writes_lose_and_duplicate_no_write() {
    outages_in_the_middle_of_writes(PostgresServer::kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_of_the_server_during_writes_lose_and_duplicate_no_write() {
    outages_in_the_middle_of_writes(PostgresServer::stop).await;
}

async fn outages_in_the_middle_of_writes(ends: fn(&PostgresServer)) {
    let _alone = IN_USE.lock().await;
    let options = options().with_max_connections(8).with_retry_timeout(Duration::from_secs(300));
    let store = options.connect(&SERVER.address("postgres")).await.unwrap();
    let outage = move || {
        ends(&SERVER);
        SERVER.start_again();
    };
    writes_through_outages(store, [outage; 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_on_an_unavailable_server_fail_with_a_retryable_error() {
    let _alone = IN_USE.lock().await;
    let options = options().with_retry_timeout(Duration::from_millis(50));
    let address = SERVER.address("postgres");
    let store = options.clone().connect(&address).await.unwrap();
    let key = key("away");
    let revision = append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
    tokio::task::spawn_blocking(|| SERVER.crash()).await.unwrap();
    let second = write(&key, revision, &["b"]);
    let error = append(&store, second.clone()).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Backend { .. }) && error.is_retryable(), "{error:?}");
    assert!(options.connect(&address).await.unwrap_err().is_retryable());
    tokio::task::spawn_blocking(|| SERVER.start_again()).await.unwrap();
    append(&store, second).await.unwrap();
    assert_eq!(texts(&store, &key).await, ["a", "b"]);
}
