//! Writers that append continuously, each to its own conversation, during the events of a scenario.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{HistoryStore, Revision, StoreError, author::Write},
};
use tower_chat_testkit::Rng;

use super::{
    Plant, Search,
    log::{Entry, WriterLog, entries},
};
use crate::Failure;

/// How long a writer retries a failing write.
const RETRY_TIMEOUT: Duration = Duration::from_secs(120);

/// The pause before a writer sends a failed write again.
const PAUSE: Duration = Duration::from_millis(10);

/// The number of the append that the first writer does not send with
/// [`Plant::LostAppend`](super::Plant::LostAppend).
const LOST: u64 = 5;

pub(super) struct Writers {
    tasks: Vec<JoinHandle<Result<WriterLog, Failure>>>,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

struct Writer<S> {
    store: S,
    search: Search,
    is_first: bool,
    log: WriterLog,
    rng: Rng,
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

/// The outcome of a write.
enum Sent {
    Stored(Revision),
    /// The conversation does not have the expected revision.
    Refused {
        found: Revision,
    },
}

impl Writers {
    pub(super) fn start<S: HistoryStore + Clone + 'static>(search: Search, store: &S) -> Self {
        let key = |number| ConversationKey::new("scale-out", format!("writer {number}"));
        Self::start_with(search, key, |_| store.clone())
    }

    /// Starts writers. `key` returns the conversation of a writer, and `store` the store of a
    /// conversation.
    pub(super) fn start_with<S: HistoryStore + Clone + 'static>(
        search: Search,
        key: impl Fn(usize) -> ConversationKey,
        store: impl Fn(&ConversationKey) -> S,
    ) -> Self {
        let (is_over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let tasks = (0..search.writers).map(|number| {
            let key = key(number);
            let writer = Writer {
                store: store(&key),
                search,
                is_first: number == 0,
                rng: Rng::of(search.seed, (search.case << 16) + number as u64),
                log: WriterLog::new(key),
                is_over: is_over.clone(),
                acknowledged: Arc::clone(&acknowledged),
            };
            tokio::spawn(writer.run())
        });
        Self { tasks: tasks.collect(), is_over, acknowledged }
    }

    pub(super) async fn progress(&self, writes: u64) {
        let enough = self.acknowledged.load(Ordering::SeqCst) + writes;
        let is_at_work = || self.tasks.iter().any(|task| !task.is_finished());
        while self.acknowledged.load(Ordering::SeqCst) < enough && is_at_work() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the time of a phase, and then for some more acknowledged writes.
    pub(super) async fn run_phase(&self, search: Search) {
        tokio::time::sleep(search.phase).await;
        self.progress(4 * search.writers as u64).await;
    }

    /// Lets each writer complete its current write, and returns the logs.
    pub(super) async fn stop(self) -> Result<Vec<WriterLog>, Failure> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut logs = Vec::new();
        for task in self.tasks {
            let log = task.await.map_err(|error| Failure::CannotRun {
                what: "a writer has panicked".to_owned(),
                source: Some(error.into()),
            });
            logs.push(log??);
        }
        Ok(logs)
    }
}

impl<S: HistoryStore> Writer<S> {
    async fn run(mut self) -> Result<WriterLog, Failure> {
        let mut revision = Revision::ABSENT;
        let mut number = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            number += 1;
            let write = self.write(number, revision);
            let added = added(&write);
            if self.is_first && number == LOST && self.search.plant == Some(Plant::LostAppend) {
                self.log.acknowledge(added);
                continue;
            }
            match self.send(&write).await? {
                Sent::Stored(stored) => {
                    self.log.acknowledge(added);
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                    revision = stored;
                }
                Sent::Refused { found } => revision = self.after_conflict(&added, found).await?,
            }
        }
        Ok(self.log)
    }

    fn write(&mut self, number: u64, expected: Revision) -> Write {
        let id = MessageId { run: RunId::new(), index: 0 };
        let key = self.log.key.clone();
        let messages = (0..1 + self.rng.below(3)).map(|index| {
            let filler = "x".repeat(self.rng.below(200));
            Arc::new(Message::user(format!("{} {number} {index} {filler}", key.id())))
        });
        let messages: Vec<_> = messages.collect();
        Write::new(key, id, expected, messages)
    }

    async fn send(&mut self, write: &Write) -> Result<Sent, Failure> {
        let began = Instant::now();
        loop {
            let error = match append(&self.store, write.clone()).await {
                Ok(revision) => {
                    self.log.record_duration(began.elapsed());
                    return Ok(Sent::Stored(revision));
                }
                Err(error) => error,
            };
            match error {
                StoreError::Conflict(conflict) => {
                    return Ok(Sent::Refused { found: conflict.found });
                }
                error if !is_temporary(&error) || began.elapsed() > RETRY_TIMEOUT => {
                    return Err(self.found(format!("a write failed: {}", text(&error))));
                }
                _ => self.log.retries += 1,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Loads the conversation after a conflict, and continues at the loaded revision. No other
    /// writer uses the conversation. A conflict therefore means that the server has lost the last
    /// writes of this writer.
    async fn after_conflict(
        &mut self,
        refused: &[Entry],
        found: Revision,
    ) -> Result<Revision, Failure> {
        self.log.conflicts += 1;
        if self.search.plant == Some(Plant::IgnoreRevision) {
            return Ok(found);
        }
        let history = until_answered(|| self.store.load(&self.log.key)).await?;
        let stored = entries(&history);
        if stored.ends_with(refused) {
            return Err(self.found("a write was refused, but is stored".to_owned()));
        }
        self.log.remove_lost(&stored).map_err(|what| self.found(what))?;
        Ok(history.head.revision)
    }

    fn found(&self, what: String) -> Failure {
        self.search.found(format!("conversation {}: {what}", self.log.key))
    }
}

pub(super) fn added(write: &Write) -> Vec<Entry> {
    let numbered = (write.id().index..).zip(write.messages());
    let entry = |(index, message): (u32, &Arc<Message>)| {
        (MessageId { index, ..write.id() }, message.text())
    };
    numbered.map(entry).collect()
}

pub(super) async fn append(
    store: &impl HistoryStore,
    write: Write,
) -> Result<Revision, StoreError> {
    let slot = store.reserve().await?;
    store.append(slot, vec![write]).await.map_err(|error| error.source)
}

pub(super) async fn until_answered<Answer, Asked>(
    mut ask: impl FnMut() -> Asked,
) -> Result<Answer, Failure>
where
    Asked: Future<Output = Result<Answer, StoreError>>,
{
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if is_temporary(&error) && began.elapsed() < RETRY_TIMEOUT => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                let what = "a read failed".to_owned();
                return Err(Failure::CannotRun { what, source: Some(error.into()) });
            }
        }
    }
}

/// Returns whether a retry may succeed. After an error of a read-only server, the next connection
/// may reach a server that accepts writes.
fn is_temporary(error: &StoreError) -> bool {
    error.is_retryable() || matches!(error, StoreError::ReadOnly)
}

pub(super) fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
