//! Tests that concurrent callers share one load.

use futures_util::{FutureExt, future::join_all};
use tower_chat_core::store::{HistoryStore, Revision, StoreError};
use tower_chat_testkit::Gate;

use crate::common::{append, broken, cache, cache_with, key, reads, texts, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_loads_read_the_inner_store_once() {
    let store = cache();
    append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    let gate = Gate::closed();
    store.inner().hold_next_load(&gate);
    let load = || {
        let store = store.clone();
        tokio::spawn(async move { texts(&store).await })
    };
    let first = load();
    gate.reached(1).await;
    let others: Vec<_> = (0..20).map(|_| load()).collect();
    tokio::task::yield_now().await;
    gate.open();
    for loaded in join_all(others.into_iter().chain([first])).await {
        assert_eq!(loaded.unwrap(), ["1"]);
    }
    assert_eq!(reads(store.inner()), (1, 0));
}

#[tokio::test]
async fn every_caller_of_a_shared_load_receives_its_error_and_the_next_load_reads_again() {
    let store = cache();
    let gate = Gate::closed();
    store.inner().hold_next_load(&gate);
    let damaged = StoreError::Corrupt { reason: "a missing page".into() };
    store.inner().fail_next_load(damaged);
    let key = key();
    let mut loads = [(); 3].map(|()| store.load(&key).boxed());
    assert!(loads.iter_mut().all(|load| load.now_or_never().is_none()));
    gate.open();
    for load in loads {
        let error = load.await.unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { reason } if reason == "a missing page"));
    }
    assert_eq!(store.inner().loads(), 1);
    assert!(store.load(&key).await.is_ok());
}

#[tokio::test]
async fn every_caller_of_a_shared_load_receives_the_backend_error_with_its_source() {
    let store = cache();
    let gate = Gate::closed();
    store.inner().hold_next_load(&gate);
    store.inner().fail_next_load(broken());
    let key = key();
    let mut loads = [(); 2].map(|()| store.load(&key).boxed());
    assert!(loads.iter_mut().all(|load| load.now_or_never().is_none()));
    gate.open();
    for load in loads {
        let error = load.await.unwrap_err();
        assert_eq!(error.to_string(), broken().to_string());
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "disk on fire");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn a_shared_load_is_completed_although_one_of_its_callers_is_dropped() {
    let store = cache();
    append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    let (gate, key) = (Gate::closed(), key());
    store.inner().hold_next_load(&gate);
    let (mut first, mut second) = (store.load(&key).boxed(), store.load(&key).boxed());
    assert!((&mut first).now_or_never().is_none());
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    gate.open();
    assert_eq!(second.await.unwrap().messages.len(), 1);
    assert_eq!(store.inner().loads(), 1);
    drop(store.load(&key));
}

#[tokio::test]
async fn a_load_whose_callers_were_all_dropped_does_not_affect_later_loads() {
    let store = cache();
    let (gate, key) = (Gate::closed(), key());
    store.inner().hold_next_load(&gate);
    assert!(store.load(&key).now_or_never().is_none());
    append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1"]);
}

/// A load that begins after a write must include the write. Therefore the load does not share an
/// earlier load.
#[tokio::test]
async fn a_load_after_a_write_does_not_share_an_earlier_load() {
    let store = cache();
    let (gate, key) = (Gate::closed(), key());
    store.inner().hold_next_load(&gate);
    let mut early = store.load(&key).boxed();
    assert!((&mut early).now_or_never().is_none());
    append(&store, write(Revision::ABSENT, &["1"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1"]);
    append(&store, write(store.head(&key).await.unwrap().revision, &["2"])).await.unwrap();
    gate.open();
    early.await.unwrap();
    assert_eq!(texts(&store).await, ["1", "2"]);
    assert_eq!(store.inner().loads(), 2);
}

/// If other processes write, the shared load may have begun before a write that a later caller must
/// see.
#[tokio::test]
async fn the_result_of_a_shared_load_is_compared_with_the_head_for_a_later_caller() {
    let store = cache_with(tower_chat_cache::Revalidation::Always);
    let (gate, key) = (Gate::closed(), key());
    store.inner().hold_next_load(&gate);
    let mut first = store.load(&key).boxed();
    assert!((&mut first).now_or_never().is_none());
    let mut second = store.load(&key).boxed();
    assert!((&mut second).now_or_never().is_none());
    gate.open();
    assert!(first.await.unwrap().messages.is_empty());
    append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    assert_eq!(second.await.unwrap().messages.len(), 1);
    assert_eq!(reads(store.inner()), (2, 1));
}
