//! Tests that use internals of the crate: hooks on the writer's connection, and the leader of the
//! queue, which is the thread that executes the next group of writes.

mod checkpoints;
mod crash;
mod damaged;
mod economy;
mod failures;
mod head_cache;
mod head_on_caller;
mod lead;
mod maintenance;
mod open_runs;
mod panics;
mod pressure;
mod record;
mod removal;
mod waiting;

use std::{
    sync::{Arc, mpsc},
    thread,
};

use futures_util::FutureExt;
use rusqlite::Connection;
use tempfile::TempDir;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        HistoryStore, Revision,
        author::{Slot, Ticket, Write},
    },
};

use crate::{SqliteOptions, SqliteStore};

/// A store in its own folder.
struct Fixture {
    folder: TempDir,
    store: SqliteStore,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(SqliteStore::options()).await
    }

    async fn with(options: SqliteOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = options.open(folder.path().join("chat.db")).await.unwrap();
        Self { folder, store }
    }

    /// Opens another connection to the file, as another process would do.
    fn other(&self) -> Connection {
        Connection::open(self.folder.path().join("chat.db")).unwrap()
    }

    /// Submits writes that the writer thread executes, never the caller.
    async fn submit(&self, writes: Vec<Write>) -> Ticket {
        let slot = self.store.reserve().await.unwrap();
        self.store.append(slot.without_blocking(), writes)
    }

    async fn texts(&self, key: &ConversationKey) -> Vec<String> {
        texts(&self.store, key).await
    }

    fn is_intact(&self) -> bool {
        let check: String =
            self.other().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        check == "ok"
    }
}

async fn texts(store: &SqliteStore, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.unwrap();
    history.messages.iter().map(|message| message.text()).collect()
}

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("tests", id)
}

fn run(number: u8) -> RunId {
    RunId::from_bytes([number; 16])
}

/// Returns a write of a run. The index of the first message in the run is the number of messages in
/// the conversation.
fn write(id: &str, run: RunId, expected: Revision, texts: &[&str]) -> Write {
    let index = u32::try_from(expected.sequence).unwrap();
    let messages: Vec<Arc<Message>> =
        texts.iter().map(|text| Message::user(*text).into()).collect();
    Write::new(key(id), MessageId { run, index }, expected, messages)
}

/// Returns the first write of a conversation.
fn first(id: &str, texts: &[&str]) -> Write {
    write(id, run(1), Revision::ABSENT, texts)
}

/// Locks the writer and submits a write, so that the writer thread becomes the leader and waits for
/// the lock. Later writes wait in the queue, and form one group.
async fn hold_the_lead(store: &SqliteStore) -> Held {
    let held = Held::new(store);
    drop(store.append(unbounded(), vec![first("z", &["first group"])]));
    while !store.queue().is_led() {
        tokio::task::yield_now().await;
    }
    held
}

/// Returns whether the writes of a ticket have no outcome yet.
fn is_open(ticket: &mut Ticket) -> bool {
    ticket.now_or_never().is_none()
}

fn unbounded() -> Slot {
    Slot::unbounded().without_blocking()
}

/// A guard that has the lock on the writer until the guard is dropped.
struct Held {
    release: Option<mpsc::Sender<()>>,
    holder: Option<thread::JoinHandle<()>>,
}

impl Held {
    fn new(store: &SqliteStore) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let (ready, is_held) = mpsc::channel();
        let queue = store.queue().clone();
        let holder = thread::spawn(move || {
            let _writer = queue.writer();
            ready.send(()).unwrap();
            released.recv().unwrap_err();
        });
        is_held.recv().unwrap();
        Self { release: Some(release), holder: Some(holder) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.release.take());
        self.holder.take().unwrap().join().unwrap();
    }
}
