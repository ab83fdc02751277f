//! Tests of the cache under many schedules, which the crate `shuttle` generates.

mod single_flight;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use futures_util::FutureExt;
use shuttle::future;
use tokio::sync::Semaphore;
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{
        self, History, HistoryStore, Revision, StoreError,
        author::{Slot, Ticket, Write},
    },
};

/// The number of slots of the inner store, and therefore the maximum number of submissions without
/// an outcome.
const SLOTS: usize = 2;

/// A store in memory whose operations yield to other tasks.
struct SlowStore {
    inner: MemoryStore,
    slots: Arc<Semaphore>,
    loads: Arc<AtomicUsize>,
    /// The number of loads that fail, counted from the first load.
    failing_loads: usize,
    /// An injected fault: if this is set, a load that begins after a submission may not include it.
    is_late: bool,
}

impl SlowStore {
    fn new() -> Self {
        Self {
            inner: MemoryStore::new(),
            slots: Arc::new(Semaphore::new(SLOTS)),
            loads: Arc::default(),
            failing_loads: 0,
            is_late: false,
        }
    }
}

#[async_trait]
impl store::author::StoreWrapper for SlowStore {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let before = self.loads.fetch_add(1, Ordering::SeqCst);
        future::yield_now().await;
        if before < self.failing_loads {
            return Err(StoreError::backend("load", true, "a planted failure"));
        }
        let history = self.inner().load(key).await;
        future::yield_now().await;
        history
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        let permit = self.slots.clone().acquire_owned().await;
        permit.map(Slot::guarded).map_err(|_| StoreError::Closed)
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let (sender, ticket) = Ticket::channel();
        let (inner, is_late) = (self.inner.clone(), self.is_late);
        let store = move || {
            inner.append(slot, writes).now_or_never().expect("a store in memory does not wait")
        };
        let mut stored = Some(store);
        let outcome = (!is_late).then(|| stored.take().map(|store| store())).flatten();
        future::spawn(async move {
            future::yield_now().await;
            let outcome = outcome.or_else(|| stored.map(|store| store()));
            sender.send(outcome.expect("the writes are stored before or after the yield"));
        });
        ticket
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }

    fn summaries(&self) -> Option<&dyn store::Summaries> {
        self.inner().summaries()
    }
}

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("schedules", id)
}

fn write(key: &ConversationKey, expected: Revision, text: String) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, [Message::user(text).into()])
}

fn texts(history: &History) -> Vec<String> {
    history.messages.iter().map(|message| message.text()).collect()
}
