//! A server that goes away in the middle of writes and comes back.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in helpers of tests too")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{append, key, open, options, server, texts, write};
use tokio::sync::{Mutex, watch};
use tower_chat_core::store::{Revision, StoreError};
use tower_chat_testkit::server::PostgresServer;

const WRITERS: usize = 8;
const WRITES: usize = 60;
const OUTAGES: usize = 3;

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
    let store = open(options().connections(WRITERS).patience(Duration::from_secs(300))).await;
    let stored = Arc::new(AtomicUsize::new(0));
    let (progress, mut seen) = watch::channel(0);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, stored, progress) = (store.clone(), stored.clone(), progress.clone());
            tokio::spawn(async move {
                let key = key(&format!("writer {writer}"));
                let mut revision = Revision::ABSENT;
                for number in 0..WRITES {
                    let write = write(&key, revision, &[&number.to_string(), "second"]);
                    revision = append(&store, write).await.unwrap();
                    let count = stored.fetch_add(1, Ordering::SeqCst) + 1;
                    progress.send_modify(|most| *most = count.max(*most));
                }
            })
        })
        .collect();
    for outage in 1..=OUTAGES {
        let enough = outage * WRITERS * WRITES / (OUTAGES + 1);
        seen.wait_for(|count| *count >= enough).await.unwrap();
        assert!(stored.load(Ordering::SeqCst) < WRITERS * WRITES, "it ends in their middle");
        tokio::task::spawn_blocking(move || {
            ends(server());
            server().start_again();
        })
        .await
        .unwrap();
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let expected: Vec<_> =
        (0..WRITES).flat_map(|number| [number.to_string(), "second".to_owned()]).collect();
    for writer in 0..WRITERS {
        assert_eq!(texts(&store, &key(&format!("writer {writer}"))).await, expected);
    }
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
