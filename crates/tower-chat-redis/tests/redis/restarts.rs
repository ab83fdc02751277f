//! Tests of a server that crashes during writes and is started again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{append, key, options, start, texts, write};
use tower_chat_core::store::{Revision, StoreError};
use tower_chat_testkit::server::writes_through_outages;

#[tokio::test(flavor = "multi_thread")]
async fn crashes_in_the_middle_of_writes_lose_and_double_nothing() {
    let server = start(&[]);
    let options = options().with_retry_timeout(Duration::from_secs(300));
    let store = options.connect(&server.address(0)).await.unwrap();
    let server = Arc::new(Mutex::new(server));
    let outages = (0..3).map(|_| {
        let server = server.clone();
        move || {
            let mut server = server.lock().unwrap();
            server.crash();
            server.start_again();
        }
    });
    writes_through_outages(store, outages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_an_error_that_can_be_retried() {
    let mut server = start(&[]);
    let address = server.address(0);
    let options = options().with_retry_timeout(Duration::from_millis(50));
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
