//! A server that crashes in the middle of writes and comes back.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in helpers of tests too")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{append, key, options, start, texts, write};
use tokio::sync::watch;
use tower_chat_core::store::{HistoryStore, Revision, StoreError};

const WRITERS: usize = 8;
const WRITES: usize = 100;
const CRASHES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn crashes_in_the_middle_of_writes_lose_and_double_nothing() {
    let mut server = start(&[]);
    let options = options().patience(Duration::from_secs(300));
    let store = options.connect(&server.address(0)).await.unwrap();
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
    for crash in 1..=CRASHES {
        let enough = crash * WRITERS * WRITES / (CRASHES + 1);
        seen.wait_for(|count| *count >= enough).await.unwrap();
        assert!(stored.load(Ordering::SeqCst) < WRITERS * WRITES, "it crashes in their middle");
        server = tokio::task::spawn_blocking(|| {
            server.crash();
            server.start_again();
            server
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
    assert_eq!(store.list("scope", None, 100).await.unwrap().len(), WRITERS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_an_error_that_can_be_retried() {
    let mut server = start(&[]);
    let address = server.address(0);
    let options = options().patience(Duration::from_millis(50));
    let store = options.clone().connect(&address).await.unwrap();
    let key = key("away");
    let revision = append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
    server.crash();
    let second = write(&key, revision, &["b"]);
    let error = append(&store, second.clone()).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Backend { .. }) && error.is_retryable(), "{error:?}");
    assert!(options.connect(&address).await.unwrap_err().is_retryable());
    server.start_again();
    append(&store, second).await.unwrap();
    assert_eq!(texts(&store, &key).await, ["a", "b"]);
}
