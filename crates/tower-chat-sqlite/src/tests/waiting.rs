//! Tests that a load waits for earlier writes, that a caller waits for a free slot (an entry of the
//! queue), and that dropping the last handle waits for the writer.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
    thread,
};

use futures_util::FutureExt;
use rusqlite::Connection;
use tower_chat_core::{
    Message,
    store::{Directory, HistoryStore, Maintenance, Revision, StoreError},
};

use super::{Fixture, Held, first, hold_the_lead, is_open, key, run, texts, unbounded, write};
use tower_chat_core::store::Rewrite;

use crate::{Durability, SqliteStore};

#[tokio::test]
async fn a_load_waits_for_earlier_writes_to_its_conversation_and_not_for_other_writes() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.submit(vec![first("other", &["other"])]).await.await.unwrap();
    let one = first("c", &["one"]);
    let two = write("c", run(1), one.result(), &["two"]);
    let key_c = key("c");
    let mut load = store.load(&key_c);
    let mut list = store.list("tests", None, 10);
    let mut flush = store.flush();
    let held = Held::new(store);
    drop(store.append(unbounded(), vec![one]));
    drop(store.append(unbounded(), vec![two]));
    assert!((&mut load).now_or_never().is_none());
    assert!((&mut list).now_or_never().is_none());
    assert!((&mut flush).now_or_never().is_none());
    // The writer is locked, and a load of another conversation does not wait for it.
    assert_eq!(fixture.texts(&key("other")).await, ["other"]);
    drop(held);
    assert_eq!(load.await.unwrap().messages.len(), 2);
    assert_eq!(list.await.unwrap().len(), 2);
    flush.await.unwrap();
}

#[tokio::test]
async fn a_slot_is_held_until_the_write_is_durable() {
    let fixture = Fixture::with(SqliteStore::options().with_max_queued(1)).await;
    let store = &fixture.store;
    let slot = store.reserve().await.unwrap();
    assert!(store.reserve().now_or_never().is_none(), "the only slot is reserved");
    drop(slot);
    let held = Held::new(store);
    let mut ticket = fixture.submit(vec![first("c", &["one"])]).await;
    let mut reserve = store.reserve();
    assert!((&mut reserve).now_or_never().is_none(), "the only slot is in use");
    assert!(is_open(&mut ticket));
    drop(held);
    reserve.await.unwrap();
    ticket.await.unwrap();
}

#[tokio::test]
async fn a_write_is_stored_although_its_ticket_is_dropped() {
    let fixture = Fixture::new().await;
    let held = Held::new(&fixture.store);
    drop(fixture.submit(vec![first("c", &["one"])]).await);
    drop(held);
    fixture.store.flush().await.unwrap();
    let stored: i64 =
        fixture.other().query_row("SELECT count(*) FROM messages", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, 1);
}

#[tokio::test]
async fn dropping_the_last_handle_stores_all_submitted_writes() {
    let Fixture { folder, store } = Fixture::new().await;
    let held = Held::new(&store);
    drop(store.append(unbounded(), vec![first("c", &["one"])]));
    drop(store.append(unbounded(), vec![first("d", &["two"])]));
    let dropping = thread::spawn(move || drop(store));
    drop(held);
    dropping.join().unwrap();
    let path = folder.path().join("chat.db");
    assert!(
        !folder.path().join("chat.db-wal").exists(),
        "the log was copied into the file and removed"
    );
    let store = SqliteStore::open(path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    assert_eq!(texts(&store, &key("d")).await, ["two"]);
}

#[tokio::test]
async fn closing_stores_all_submitted_writes_and_refuses_later_writes() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let late = store.reserve().await.unwrap();
    let held = Held::new(store);
    let early = fixture.submit(vec![first("c", &["one"])]).await;
    let mut close = store.close();
    assert!((&mut close).now_or_never().is_none());
    let error = store.append(late, vec![first("d", &["late"])]).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Closed) && error.completed == 0);
    drop(held);
    close.await.unwrap();
    early.await.unwrap();
    assert!(matches!(store.reserve().await, Err(StoreError::Closed)));
    assert!(matches!(store.delete(&key("c")).await, Err(StoreError::Closed)));
    assert!(
        !fixture.folder.path().join("chat.db-wal").exists(),
        "the log was copied into the file and removed"
    );
    assert_eq!(fixture.texts(&key("c")).await, ["one"]);
    assert_eq!(store.head(&key("d")).await.unwrap().revision, Revision::ABSENT);
    store.flush().await.unwrap();
    store.close().await.unwrap();
}

/// Another connection prevents the checkpoint at close, and a folder at the path of the log
/// prevents the store from opening and syncing the log.
#[cfg(unix)]
#[tokio::test]
async fn closing_fails_if_the_log_with_unsynced_writes_cannot_be_synced() {
    for (durability, name, is_durable) in [
        (Durability::Normal, "chat.db", false),
        (Durability::Normal, "link.db", false),
        (Durability::Full, "chat.db", true),
    ] {
        let Fixture { folder, store } = Fixture::new().await;
        store.close().await.unwrap();
        let path = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(path("chat.db"), path("link.db")).unwrap();
        let options = SqliteStore::options().with_durability(durability);
        let store = options.open(path(name)).await.unwrap();
        store.append(unbounded(), vec![first("c", &["one"])]).await.unwrap();
        let other = Connection::open(path("chat.db")).unwrap();
        other.query_row("SELECT count(*) FROM messages", [], |_| Ok(())).unwrap();
        std::fs::rename(path("chat.db-wal"), path("moved-wal")).unwrap();
        std::fs::create_dir(path("chat.db-wal")).unwrap();
        let closed = store.close().await;
        assert_eq!(closed.is_ok(), is_durable, "{durability:?} {name}: {closed:?}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_deletion_waits_for_earlier_writes_to_its_conversation() {
    let fixture = Fixture::new().await;
    let held = Held::new(&fixture.store);
    drop(fixture.submit(vec![first("c", &["one"])]).await);
    let key_c = key("c");
    let mut delete = fixture.store.delete(&key_c);
    assert!((&mut delete).now_or_never().is_none());
    drop(held);
    assert!(delete.await.unwrap());
    assert_eq!(fixture.store.head(&key("c")).await.unwrap().revision, Revision::ABSENT);
}

#[tokio::test]
async fn exclusive_work_runs_between_earlier_and_later_writes() {
    let fixture = Fixture::new().await;
    let (store, queue) = (&fixture.store, fixture.store.queue());
    let held = hold_the_lead(store).await;
    let before = store.append(unbounded(), vec![first("a", &["one"])]);
    let seen = queue.clone();
    let turn = queue.run_exclusively(move || seen.commits());
    let given_up = queue.run_exclusively(|| panic!("the receiver was dropped"));
    drop(given_up);
    let after = store.append(unbounded(), vec![first("b", &["two"])]);
    drop(held);
    assert_eq!(turn.await.unwrap(), 2, "after the active group and the earlier write");
    before.await.unwrap();
    after.await.unwrap();
    assert_eq!(
        store.statistics().commits,
        3,
        "writes before and after exclusive work are separate groups"
    );
}

#[tokio::test]
async fn a_rewrite_is_queued_and_fails_on_a_closed_store() {
    let fixture = Fixture::new().await;
    let before = fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    let held = Held::new(&fixture.store);
    let mut rewrite = Rewrite::new(key("c"), before);
    rewrite.messages.push((1, Message::user("other")));
    let mut rewriting = Box::pin(fixture.store.rewrite(rewrite.clone()));
    assert!((&mut rewriting).now_or_never().is_none());
    let late = fixture.submit(vec![write("c", run(1), before, &["two"])]).await;
    drop(held);
    rewrite.expected = rewriting.await.unwrap();
    let conflict = late.await.unwrap_err();
    assert!(matches!(conflict.source, StoreError::Conflict(_)), "{conflict:?}");
    fixture.store.close().await.unwrap();
    assert!(matches!(fixture.store.rewrite(rewrite).await, Err(StoreError::Closed)));
    assert!(matches!(fixture.store.checkpoint().await, Err(StoreError::Closed)));
    assert_eq!(fixture.texts(&key("c")).await, ["other"]);
}

#[tokio::test]
async fn a_queued_deletion_is_not_executed_after_its_future_is_dropped() {
    let fixture = Fixture::new().await;
    fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    let held = Held::new(&fixture.store);
    assert!(fixture.store.delete(&key("c")).now_or_never().is_none());
    drop(held);
    fixture.store.flush().await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["one"]);
}

struct PanicsWhenWoken;

impl Wake for PanicsWhenWoken {
    fn wake(self: Arc<Self>) {
        panic!("woken");
    }
}

#[tokio::test]
async fn a_writer_thread_that_panicked_leaves_no_caller_waiting() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let held = hold_the_lead(store).await;
    let mut fatal = store.append(unbounded(), vec![first("a", &["one"])]);
    let waker = Waker::from(Arc::new(PanicsWhenWoken));
    assert!(fatal.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    let same_group = store.append(unbounded(), vec![first("b", &["two"])]);
    drop(held);
    let error = same_group.await.unwrap_err();
    assert!(matches!(error.source, StoreError::Closed), "its outcome is unknown");
    // The error is sent before the thread has ended.
    while store.queue().barrier(None).is_some() || !store.queue().is_closed() {
        tokio::task::yield_now().await;
    }
    let error = store.append(unbounded(), vec![first("c", &["late"])]).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Closed));
    store.flush().await.unwrap();
    assert_eq!(fixture.texts(&key("b")).await, ["two"]);
    store.close().await.unwrap();
}
