//! Tests that writes survive outages of a server.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{HistoryStore, Revision, author::Write},
};

const SCOPE: &str = "outages";
/// The number of tasks that write, each to its own conversation.
const WRITERS: usize = 12;
/// The number of writes, in total over all tasks, between two outages.
const BETWEEN_OUTAGES: usize = 120;

/// Writes to `store` from several tasks, each to its own conversation, during a sequence of
/// outages. Then checks that every write was stored once and in order.
///
/// Each outage is a function that stops and restarts the server. After the last outage, the tasks
/// store a few more writes and then stop. The store must retry a write for a longer time than any
/// outage.
///
/// # Panics
///
/// Panics if a write fails, is missing, or was stored twice.
pub async fn writes_through_outages<Store, Outage>(
    store: Store,
    outages: impl IntoIterator<Item = Outage>,
) where
    Store: HistoryStore + Clone + 'static,
    Outage: FnOnce() + Send + 'static,
{
    let has_ended = Arc::new(AtomicBool::new(false));
    let (stored, mut progress) = watch::channel(0);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let until = has_ended.clone();
            tokio::spawn(write_until(until, store.clone(), key(writer), stored.clone()))
        })
        .collect();
    for outage in outages {
        some_writes(&mut progress).await;
        tokio::task::spawn_blocking(outage).await.expect("the outage task did not panic");
    }
    some_writes(&mut progress).await;
    has_ended.store(true, Ordering::SeqCst);
    for (number, writer) in writers.into_iter().enumerate() {
        let writes = writer.await.expect("the writer did not panic");
        let history = store.load(&key(number)).await.expect("the history is loaded");
        let found: Vec<_> = history.messages.iter().map(|message| message.text()).collect();
        let expected: Vec<_> = (0..writes).flat_map(texts).collect();
        assert_eq!(found, expected, "writer {number}");
    }
    let directory = store.directory().expect("the store has a directory");
    let conversations = directory.list(SCOPE, None, 2 * WRITERS).await.expect("the list is read");
    assert_eq!(conversations.len(), WRITERS);
}

fn key(writer: usize) -> ConversationKey {
    ConversationKey::new(SCOPE, format!("writer {writer}"))
}

fn texts(number: usize) -> [String; 2] {
    [number.to_string(), "second".to_owned()]
}

/// Stores writes until `has_ended` is set, and returns the number of writes.
async fn write_until(
    has_ended: Arc<AtomicBool>,
    store: impl HistoryStore,
    key: ConversationKey,
    stored: watch::Sender<usize>,
) -> usize {
    let mut revision = Revision::ABSENT;
    let mut writes = 0;
    while !has_ended.load(Ordering::SeqCst) {
        let id = MessageId { run: RunId::new(), index: 0 };
        let messages = texts(writes).map(|text| Arc::new(Message::user(text)));
        let write = Write::new(key.clone(), id, revision, messages);
        let slot = store.reserve().await.expect("the queue has room");
        revision = store
            .append(slot, vec![write])
            .await
            .expect("the store retries the write until the outage ends");
        writes += 1;
        stored.send_modify(|count| *count += 1);
    }
    writes
}

/// Waits until all tasks together have stored another [`BETWEEN_OUTAGES`] writes.
async fn some_writes(progress: &mut watch::Receiver<usize>) {
    let enough = *progress.borrow() + BETWEEN_OUTAGES;
    progress.wait_for(|count| *count >= enough).await.expect("there are writers");
}
