//! Tests of transfers that are stopped at each await, or whose store fails at each operation, and
//! that are then continued.

use std::{
    io::{self, Cursor},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::io::AsyncWrite;
use tower_chat::{
    HistoryStore, MemoryStore,
    store::{Directory, StoreError},
    transfer::{
        ExportContents, ExportFile, OutcomeKind, Selection, TransferError, copy, delete_scope,
        export, import,
    },
};
use tower_chat_testkit::{FaultyStore, Injection, Operation, StoreFault};

use crate::conversations::{
    add_run, assert_same, export_alice, fill, fill_pruned, import_file, key,
};

const KEYS: [&str; 3] = ["coats", "hats", "pruned"];

async fn source() -> MemoryStore {
    let store = MemoryStore::new();
    fill(&store, &key("coats")).await;
    add_run(&store, &key("hats"), 3, &["a", "b", "c"]).await;
    fill_pruned(&store, &key("pruned")).await;
    store
}

/// Returns a store that waits before and after each operation.
fn waiting(store: &MemoryStore) -> FaultyStore<MemoryStore> {
    FaultyStore::with_injector(store.clone(), |_: Operation| Injection::none().delayed(1, 1))
}

/// Polls a future at most `polls` times, and then drops it. Returns the output, if any.
async fn stop_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Checks that the target has nothing, the beginning or the whole of each conversation.
async fn assert_beginnings(source: &MemoryStore, target: &MemoryStore) {
    for name in KEYS {
        let (all, some) = (
            source.load(&key(name)).await.unwrap().messages,
            target.load(&key(name)).await.unwrap().messages,
        );
        assert_eq!(some, all.take(some.len()), "{name}");
    }
}

#[tokio::test]
async fn an_import_that_is_dropped_at_any_await_can_be_continued() {
    let source = source().await;
    let (file, alice) = (export_alice(&source).await, Selection::scope("alice"));
    let mut stopped = 0;
    loop {
        let target = MemoryStore::new();
        let store = waiting(&target);
        let mut progress = |_: &_| Ok(());
        let import = import(&store, Cursor::new(&file), &alice, &mut progress);
        let done = stop_after(stopped, import).await;
        store.flush().await.unwrap();
        assert_beginnings(&source, &target).await;
        let receipt = import_file(&target, &file).await;
        assert_eq!(receipt.refused, [], "after {stopped} awaits");
        for name in KEYS {
            assert_same(&source, &target, &key(name)).await;
        }
        if done.is_some() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 50, "{stopped} awaits");
}

#[tokio::test]
async fn a_copy_that_is_dropped_at_any_await_continues_after_its_last_conversation() {
    let source = source().await;
    let alice = Selection::scope("alice");
    let mut stopped = 0;
    loop {
        let target = MemoryStore::new();
        let (from, to) = (waiting(&source), waiting(&target));
        let mut last = None;
        let mut progress = |event: &tower_chat::transfer::Event| {
            if let tower_chat::transfer::Event::Done(step) = event {
                last = Some(step.key());
            }
            Ok(())
        };
        let done = stop_after(stopped, copy(&from, &to, &alice, &mut progress)).await;
        to.flush().await.unwrap();
        assert_beginnings(&source, &target).await;
        let rest = last.map_or(alice.clone(), |last| alice.clone().after(last));
        let receipt = copy(&source, &target, &rest, &mut |_| Ok(())).await.unwrap();
        assert_eq!(receipt.refused, [], "after {stopped} awaits");
        for name in KEYS {
            assert_same(&source, &target, &key(name)).await;
        }
        if done.is_some() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 50, "{stopped} awaits");
}

#[tokio::test]
async fn a_transfer_whose_store_fails_at_any_operation_can_be_repeated() {
    let source = source().await;
    let (file, alice) = (export_alice(&source).await, Selection::scope("alice"));
    for is_stored in [false, true] {
        let mut failing = 0;
        loop {
            let target = MemoryStore::new();
            let count = Arc::new(AtomicUsize::new(0));
            let counted = count.clone();
            let store = FaultyStore::with_injector(target.clone(), move |_: Operation| {
                let error = StoreError::backend("work", true, "the plug was pulled");
                match counted.fetch_add(1, Ordering::Relaxed) {
                    now if now != failing => Injection::none(),
                    _ if is_stored => Injection::none().with(StoreFault::After(error)),
                    _ => Injection::none().with(StoreFault::Before(error)),
                }
            });
            let outcome = import(&store, Cursor::new(&file), &alice, &mut |_| Ok(())).await;
            if outcome.is_ok() {
                assert!(failing >= count.load(Ordering::Relaxed), "the transfer ignored a failure");
                break;
            }
            assert!(matches!(outcome, Err(TransferError::Store(_))), "{outcome:?}");
            assert_beginnings(&source, &target).await;
            let receipt = import_file(&target, &file).await;
            assert_eq!(receipt.refused, [], "at operation {failing}");
            for name in KEYS {
                assert_same(&source, &target, &key(name)).await;
            }
            failing += 1;
        }
        assert!(failing > 20, "{failing} operations");
    }
}

/// A writer that accepts a few bytes at a time. Every other poll returns `Pending`.
#[derive(Default)]
struct SlowFile {
    bytes: Vec<u8>,
    is_ready: bool,
}

impl AsyncWrite for SlowFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_ready = !self.is_ready;
        if !self.is_ready {
            return Poll::Pending;
        }
        let taken = bytes.len().min(97);
        self.bytes.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_export_that_is_dropped_at_any_await_continues_in_the_same_file() {
    let source = source().await;
    let whole = export_alice(&source).await;
    let alice = Selection::scope("alice");
    let mut stopped = 0;
    loop {
        let mut file = SlowFile::default();
        let store = waiting(&source);
        let mut progress = |_: &_| Ok(());
        let export_slowly = export(&store, &alice, ExportFile::new(&mut file), &mut progress);
        let done = stop_after(stopped, export_slowly).await;
        let mut bytes = file.bytes;
        if done.is_some() {
            assert_eq!(bytes, whole);
            break;
        }
        if bytes.contains(&b'\n') {
            let contents = ExportContents::read(&*bytes).await.unwrap();
            assert!(!contents.is_complete() || bytes == whole);
            bytes.truncate(contents.whole_bytes().try_into().unwrap());
            let rest =
                contents.last().map_or(alice.clone(), |last| alice.clone().after(last.clone()));
            let file = ExportFile::resume(&mut bytes, &contents);
            let receipt = export(&source, &rest, file, &mut |_| Ok(())).await.unwrap();
            let done = receipt.total(OutcomeKind::Exported).conversations;
            assert_eq!(done + contents.conversations(), 3);
            assert_eq!(bytes, whole);
        }
        stopped += 1;
    }
    assert!(stopped > 50, "{stopped} awaits");
}

#[tokio::test]
async fn a_deletion_that_is_dropped_at_any_await_can_be_continued() {
    let mut stopped = 0;
    loop {
        let target = source().await;
        let other = tower_chat::ConversationKey::new("bob", "coats");
        add_run(&target, &other, 1, &["of another scope"]).await;
        let store = waiting(&target);
        let mut progress = |_: &_| Ok(());
        let done = stop_after(stopped, delete_scope(&store, "alice", &mut progress)).await;
        store.flush().await.unwrap();
        delete_scope(&target, "alice", &mut |_| Ok(())).await.unwrap();
        for name in KEYS {
            assert_eq!(target.summary(&key(name)).await.unwrap(), None);
        }
        assert_eq!(target.load(&other).await.unwrap().messages.len(), 1);
        if done.is_some() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 10, "{stopped} awaits");
}
