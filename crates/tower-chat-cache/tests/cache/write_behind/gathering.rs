//! Tests of which writes are gathered, and when they are stored.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use tower_chat_core::{
    ConversationKey, MemoryStore,
    store::{
        HistoryStore, InvocationQuery, Lease, Revision, SequencePosition, StoreError,
        author::{Claim, Staged},
    },
};
use tower_chat_testkit::FaultyStore;

use super::{Behind, append, append_all, behind, behind_by, key, stored, texts, write, write_to};

#[tokio::test]
async fn the_first_write_is_stored_at_once_and_those_that_go_on_from_it_later_and_together() {
    let store = behind();
    append_all(&store, Revision::ABSENT, &["1", "2", "3", "4"]).await;
    assert_eq!(stored(&store).await, ["1"]);
    assert_eq!((store.unstored_writes(), store.inner().appends()), (3, 1));

    store.flush().await.unwrap();
    assert_eq!(stored(&store).await, ["1", "2", "3", "4"]);
    assert_eq!((store.unstored_writes(), store.inner().appends()), (0, 2));
}

#[tokio::test]
async fn after_the_delay_they_are_stored_though_nobody_asks() {
    let store = behind_by(Duration::from_millis(1));
    append_all(&store, Revision::ABSENT, &["1", "2", "3"]).await;
    while stored(&store).await.len() < 3 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_last_clone_leaves_nothing_unstored() {
    let inner = FaultyStore::new(MemoryStore::new());
    let store = tower_chat_cache::WriteBehindStore::new(inner.clone(), crate::write_behind::NEVER);
    append_all(&store, Revision::ABSENT, &["1", "2", "3"]).await;
    drop(store);
    while texts(inner.inner()).await.len() < 3 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn closing_stores_everything_first() {
    let store = behind();
    let end = append_all(&store, Revision::ABSENT, &["1", "2", "3"]).await;
    store.close().await.unwrap();
    assert_eq!(stored(&store).await, ["1", "2", "3"]);
    assert!(matches!(store.reserve().await, Err(StoreError::Closed)));
    let late = store
        .append(tower_chat_core::store::author::Slot::unbounded(), vec![write(end, "4")])
        .await;
    assert!(matches!(late.unwrap_err().source, StoreError::Closed));
}

type Reading = fn(&Behind) -> BoxFuture<'_, ()>;

#[tokio::test]
async fn every_reading_sees_what_was_acknowledged() {
    let readings: [(&str, Reading); 7] = [
        ("load", |store| async { drop(store.load(&key()).await.unwrap()) }.boxed()),
        ("head", |store| async { drop(store.head(&key()).await.unwrap()) }.boxed()),
        ("open run", |store| async { drop(store.open_run(&key()).await.unwrap()) }.boxed()),
        ("list", |store| async { drop(store.list("alice", None, 9).await.unwrap()) }.boxed()),
        ("record", |store| {
            async { drop(store.invocations(&InvocationQuery::of(&key())).await.unwrap()) }.boxed()
        }),
        ("totals", |store| {
            let query = InvocationQuery::in_scope("alice");
            async move { drop(store.tool_totals(&query).await.unwrap()) }.boxed()
        }),
        ("fork", |store| {
            let copy = ConversationKey::new("alice", "copy");
            async move { assert_eq!(store.fork(&key(), &copy).await.unwrap().sequence, 3) }.boxed()
        }),
    ];
    for (name, read) in readings {
        let store = behind();
        append_all(&store, Revision::ABSENT, &["1", "2", "3"]).await;
        assert_eq!(store.unstored_writes(), 2, "{name}");
        read(&store).await;
        assert_eq!(stored(&store).await, ["1", "2", "3"], "{name}");
    }
}

#[tokio::test]
async fn durable_writes_are_never_gathered() {
    let store = behind();
    let end = append_all(&store, Revision::ABSENT, &["1", "2"]).await;
    assert_eq!(store.unstored_writes(), 1);
    let renewed_at = std::time::SystemTime::UNIX_EPOCH;
    let lease = Lease { attempt: 1, holder: 7, renewed_at, until: None };
    let staged = Staged { lease, close: None, service_id: None, partial_text: None };
    append(&store, write(end, "staged").staged(staged)).await.unwrap();
    assert_eq!(store.unstored_writes(), 0);
    assert_eq!(stored(&store).await, ["1", "2"]);
    assert!(store.inner().inner().open_run(&key()).await.unwrap().is_some());

    let other = ConversationKey::new("alice", "other");
    let first = append(&store, write_to(&other, Revision::ABSENT, "1")).await.unwrap();
    let second = append(&store, write_to(&other, first, "2")).await.unwrap();
    let claiming = |started_at| {
        let claim = Claim { call: SequencePosition { sequence: 1, index: 0 }, started_at };
        write_to(&other, second, "3").with_claims(vec![claim])
    };
    let error = append(&store, claiming(Some(renewed_at))).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Claimed { .. }));
    append(&store, claiming(None)).await.unwrap();
    assert_eq!(store.unstored_writes(), 0);
    assert_eq!(store.inner().inner().load(&other).await.unwrap().messages.len(), 3);
}

#[tokio::test]
async fn a_deleted_conversation_begins_anew() {
    let store = behind();
    let end = append_all(&store, Revision::ABSENT, &["1", "2"]).await;
    assert!(store.delete(&key()).await.unwrap());
    assert!(stored(&store).await.is_empty());
    assert!(append(&store, write(end, "3")).await.is_err());
    append_all(&store, Revision::ABSENT, &["new"]).await;
    assert_eq!(texts(&store).await, ["new"]);
}
