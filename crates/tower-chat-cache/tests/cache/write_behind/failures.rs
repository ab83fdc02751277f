//! Tests of gathered writes that fail for a while or permanently.

use std::time::Duration;

use tower_chat_cache::WriteBehindStore;
use tower_chat_core::{
    MemoryStore,
    store::{HistoryStore, Revision, StoreError},
};
use tower_chat_testkit::FaultyStore;

use super::{append, append_all, behind, behind_by, broken, key, stored, texts, write};

#[tokio::test]
async fn a_store_that_fails_for_a_while_gets_everything_in_the_end() {
    let store = behind_by(Duration::from_millis(1));
    let first = append_all(&store, Revision::ABSENT, &["1"]).await;
    store.inner().fail_every_append(broken);
    let end = append_all(&store, first, &["2", "3"]).await;
    while store.inner().appends() < 4 {
        tokio::task::yield_now().await;
    }
    let error = store.load(&key()).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(store.flush().await.is_err());
    append_all(&store, end, &["4"]).await;
    store.inner().heal();
    while stored(&store).await.len() < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(texts(&store).await, ["1", "2", "3", "4"]);
    store.flush().await.unwrap();
}

#[tokio::test]
async fn a_write_that_failed_after_it_was_stored_is_not_stored_twice() {
    let store = behind();
    append_all(&store, Revision::ABSENT, &["1", "2", "3"]).await;
    store.inner().fail_next_append_after_storing(broken());
    assert!(store.flush().await.is_err());
    store.flush().await.unwrap();
    assert_eq!(stored(&store).await, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_submission_that_failed_in_the_middle_goes_on_there() {
    let store = behind();
    append_all(&store, Revision::ABSENT, &["1", "2", "3", "4"]).await;
    store.inner().fail_next_append_at(1, broken());
    assert!(store.flush().await.is_err());
    assert_eq!((stored(&store).await.len(), store.unstored_writes()), (2, 2));
    store.flush().await.unwrap();
    assert_eq!(stored(&store).await, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_write_that_waits_behind_others_fails_with_them() {
    let store = behind();
    let first = append_all(&store, Revision::ABSENT, &["1"]).await;
    append_all(&store, first, &["2"]).await;
    store.inner().fail_next_append(broken());
    let error = append(&store, write(first, "late")).await.unwrap_err();
    assert!(error.source.is_retryable());
    assert_eq!(error.completed, 0);
    assert_eq!(texts(&store).await, ["1", "2"]);
}

#[tokio::test]
async fn a_conflict_with_another_process_is_told_to_the_next_writer() {
    for flushes in [true, false] {
        let inner = FaultyStore::new(MemoryStore::new());
        let delay = if flushes { crate::write_behind::NEVER } else { Duration::from_millis(1) };
        let store = WriteBehindStore::new(inner.clone(), delay);
        let first = append_all(&store, Revision::ABSENT, &["1"]).await;
        let theirs = append(&inner.in_another_process(), write(first, "theirs")).await.unwrap();
        let lost = append_all(&store, first, &["lost", "lost too"]).await;
        if flushes {
            assert!(matches!(store.flush().await, Err(StoreError::Conflict(_))));
            // The loss was reported. Later operations do not depend on the lost write.
            store.flush().await.unwrap();
        } else {
            while store.unstored_writes() > 0 {
                tokio::task::yield_now().await;
            }
        }
        let error = append(&store, write(lost, "after")).await.unwrap_err();
        assert!(matches!(error.source, StoreError::Conflict(_)), "{error:?}");
        assert_eq!(texts(&store).await, ["1", "theirs"]);
        append_all(&store, theirs, &["2"]).await;
        assert_eq!(texts(&store).await, ["1", "theirs", "2"]);
    }
}

#[tokio::test]
async fn a_write_of_another_process_is_seen_and_continued() {
    let inner = FaultyStore::new(MemoryStore::new());
    let store = WriteBehindStore::new(inner.clone(), crate::write_behind::NEVER);
    let first = append_all(&store, Revision::ABSENT, &["1"]).await;
    append(&inner, write(first, "theirs")).await.unwrap();
    let revision = store.head(&key()).await.unwrap().revision;
    // The revision is not the one after this store's last write, so the next write is not gathered.
    let end = append(&store, write(revision, "2")).await.unwrap();
    assert_eq!((store.unstored_writes(), stored(&store).await.len()), (0, 3));
    append_all(&store, end, &["3"]).await;
    assert_eq!(store.unstored_writes(), 1);
}

#[tokio::test]
async fn a_slow_store_holds_writers_back() {
    let folder = tempfile::tempdir().unwrap();
    let open = tower_chat_sqlite::SqliteStore::options().with_max_queued(3);
    let inner = open.open(folder.path().join("chat.db")).await.unwrap();
    let store = WriteBehindStore::new(inner, crate::write_behind::NEVER);
    let first = append_all(&store, Revision::ABSENT, &["1"]).await;
    append_all(&store, first, &["2", "3", "4"]).await;
    assert_eq!(store.unstored_writes(), 3);
    // No slot is free, so the gathered writes are stored before their delay has passed.
    drop(store.reserve().await.unwrap());
    assert_eq!(store.unstored_writes(), 0);
}
