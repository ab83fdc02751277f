//! Tests of a server that crashes during writes and is started again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{append, key, options, start, texts, write};
use tower_chat_core::store::{Revision, StoreError};
use tower_chat_testkit::server::writes_through_outages;

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_the_server_during_writes_lose_and_duplicate_no_write() {
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
async fn operations_on_an_unavailable_server_fail_with_a_retryable_error() {
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
