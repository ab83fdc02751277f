//! A server that goes away in the middle of writes and comes back.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in helpers of tests too")]

mod common;

use std::time::Duration;

use common::{append, key, open, options, server, texts, write};
use tokio::sync::Mutex;
use tower_chat_core::store::{Revision, StoreError};
use tower_chat_testkit::server::{PostgresServer, writes_through_outages};

/// The tests of this file take the server away from each other.
static SERVER: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn crashes_in_the_middle_of_writes_lose_and_double_nothing() {
    outages_in_the_middle_of_writes(PostgresServer::crash).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_in_the_middle_of_writes_lose_and_double_nothing() {
    outages_in_the_middle_of_writes(PostgresServer::kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_in_the_middle_of_writes_lose_and_double_nothing() {
    outages_in_the_middle_of_writes(PostgresServer::stop).await;
}

async fn outages_in_the_middle_of_writes(ends: fn(&PostgresServer)) {
    let _alone = SERVER.lock().await;
    let store = open(options().connections(8).patience(Duration::from_secs(300))).await;
    let outage = move || {
        ends(server());
        server().start_again();
    };
    writes_through_outages(store, [outage; 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_an_error_that_can_be_retried() {
    let _alone = SERVER.lock().await;
    let options = options().patience(Duration::from_millis(50));
    let store = open(options.clone()).await;
    let key = key("away");
    let revision = append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
    tokio::task::spawn_blocking(|| server().crash()).await.unwrap();
    let second = write(&key, revision, &["b"]);
    let error = append(&store, second.clone()).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Backend { .. }) && error.is_retryable(), "{error:?}");
    assert!(options.connect(&server().address("postgres")).await.unwrap_err().is_retryable());
    tokio::task::spawn_blocking(|| server().start_again()).await.unwrap();
    append(&store, second).await.unwrap();
    assert_eq!(texts(&store, &key).await, ["a", "b"]);
}
