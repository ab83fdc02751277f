//! Tests of which thread reads the head (the row) of a conversation: the calling thread, or a
//! thread of the blocking pool.

use std::{pin::pin, sync::mpsc, thread};

use futures_util::FutureExt;
use tokio::task::LocalSet;
use tower_chat_core::store::{HistoryStore, Revision};

use super::{Fixture, key};
use crate::SqliteStore;

/// Returns whether [`Readers::read_few`](crate::readers::Readers::read_few) reads on the calling
/// thread.
async fn is_read_by_caller(store: &SqliteStore) -> bool {
    let reading = store.readers().read_few("name the thread", |_| Ok(thread::current().id()));
    let caller = thread::current().id();
    reading.await.unwrap() == caller
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_multi_thread_runtime_the_caller_reads_the_head() {
    let fixture = Fixture::new().await;
    assert!(is_read_by_caller(&fixture.store).await, "in block_on");
    let store = fixture.store.clone();
    assert!(
        tokio::spawn(async move { is_read_by_caller(&store).await }).await.unwrap(),
        "in a task"
    );
}

#[test]
fn a_head_is_read_while_all_blocking_threads_of_the_runtime_are_busy() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let fixture = Fixture::new().await;
        let (release, released) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv().unwrap_err());
        let head = fixture.store.head(&key("c")).now_or_never();
        drop(release);
        busy.await.unwrap();
        assert_eq!(head.unwrap().unwrap().revision, Revision::ABSENT);
    });
}

#[tokio::test]
async fn on_a_current_thread_runtime_another_thread_reads_the_head() {
    let fixture = Fixture::new().await;
    assert!(!is_read_by_caller(&fixture.store).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_work_on_the_caller_another_thread_reads_the_head() {
    let fixture = Fixture::with(SqliteStore::options().with_work_on_caller(false)).await;
    assert!(!is_read_by_caller(&fixture.store).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_waits_for_a_connection_if_all_connections_are_in_use() {
    let fixture = Fixture::with(SqliteStore::options().with_readers(1)).await;
    let (release, released) = mpsc::channel::<()>();
    let readers = fixture.store.readers();
    let mut other = pin!(readers.read("hold the connection", move |_| {
        released.recv().unwrap_err();
        Ok(())
    }));
    assert!(other.as_mut().now_or_never().is_none());
    let key = key("c");
    let mut head = fixture.store.head(&key);
    assert!((&mut head).now_or_never().is_none());
    drop(release);
    other.await.unwrap();
    assert_eq!(head.await.unwrap().revision, Revision::ABSENT);
}

#[test]
fn inside_a_local_set_another_thread_reads_the_head() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let fixture = Fixture::new().await;
        let task = async move { assert!(!is_read_by_caller(&fixture.store).await) };
        tokio::task::spawn_local(task).await.unwrap();
    });
}
