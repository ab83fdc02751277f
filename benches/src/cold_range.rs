//! `cold_range`: the first request of a process in a long conversation, if the model receives only
//! the last 50 turns. The store is opened again for each request, and its cache, if any, is empty.
//!
//! Floor: the same request in a conversation with 100 messages. The two conversations alternate.
//! Bound: at most twice the floor.
//!
//! The program `held` measures the memory of this request; see [`measure_memory`].

use std::{sync::Arc, time::Instant};

use serde_json::json;
use tower_chat::{
    BoxError, ChatPipeline, ConversationKey, HistoryStore, Message, PersistencePolicy,
    message::MessageId,
    replay::{ReplayPolicy, Window},
    run::RunId,
    store::{Revision, author::Write},
};
use tower_chat_cache::CachingStore;
use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::{ScriptedModel, Step};

use crate::{
    Effort,
    held::Allocated,
    postgres::server,
    report::{Line, Samples, rounded, us_since},
};

/// The number of messages of the floor.
const FEW: usize = 100;

/// The number of turns that one write stores.
const TURNS_OF_SUBMISSION: usize = 500;

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let many = match effort {
        Effort::Full => 100_000,
        Effort::Quick => 1_000,
    };
    let repetitions = effort.repetitions(40);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let open = async |name: &str| SqliteStore::open(folder.path().join(name)).await;
        let plain = async || Ok(open("plain.db").await?);
        measure_store("sqlite", many, repetitions, plain).await?;
        let cached = async || Ok(CachingStore::new(open("cached.db").await?));
        measure_store("sqlite, cached", many, repetitions, cached).await?;
        let keys = MasterKeys::new("bench", SecretKey::random()?)?;
        let sealed = async || Ok(EncryptedStore::new(open("sealed.db").await?, keys.clone()));
        measure_store("sqlite, encrypted", many, repetitions, sealed).await?;
        let Some(server) = server::start()? else { return Ok(()) };
        let address = server.address("postgres");
        let connected = async || server::store(&address, "cold_range").await;
        measure_store("postgres", many, repetitions, connected).await
    })
}

/// The number of messages of the long conversation in [`measure_memory`].
const MANY_IN_MEMORY: usize = 20_000;
/// The maximum ratio of the memory in [`measure_memory`].
const MEMORY_BOUND: f64 = 1.5;

/// Measures the peak of the allocated bytes during the request, in a long conversation and in a
/// conversation with 100 messages. The memory that SQLite allocates itself is not included.
///
/// # Errors
///
/// Returns an error if the request in the long conversation needs more than 1.5 times the memory.
pub(crate) fn measure_memory(allocated: &impl Allocated) -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let open = async |name: &str| SqliteStore::open(folder.path().join(name)).await;
    let plain = async || Ok(open("plain.db").await?);
    memory_of_store("sqlite", allocated, plain)?;
    let cached = async || Ok(CachingStore::new(open("cached.db").await?));
    memory_of_store("sqlite, cached", allocated, cached)?;
    let keys = MasterKeys::new("bench", SecretKey::random()?)?;
    let sealed = async || Ok(EncryptedStore::new(open("sealed.db").await?, keys.clone()));
    memory_of_store("sqlite, encrypted", allocated, sealed)
}

fn memory_of_store<S: HistoryStore>(
    name: &'static str,
    allocated: &impl Allocated,
    open: impl AsyncFn() -> Result<S, BoxError>,
) -> Result<(), BoxError> {
    let mut floor = f64::NAN;
    for (id, messages) in [("short", FEW), ("long", MANY_IN_MEMORY)] {
        let key = ConversationKey::new("bench", id);
        // The drop of a runtime waits until its threads have dropped the loaded messages.
        runtime()?.block_on(async {
            let store = open().await?;
            fill(&store, &key, messages).await?;
            store.close().await?;
            // The first run loads all messages, and stores which messages the next run needs.
            ask(open().await?, &key).await
        })?;
        let before = allocated.now();
        allocated.reset();
        runtime()?.block_on(async { ask(open().await?, &key).await })?;
        let peak = f64::from(u32::try_from(allocated.peak().saturating_sub(before))?);
        if messages == FEW {
            floor = peak;
        }
        let line = json!({
            "case": "cold_range", "mode": name, "messages": messages, "peak_bytes": peak,
            "ratio": rounded(peak / floor),
        });
        println!("{line}");
        if peak > floor * MEMORY_BOUND {
            let what = format!(
                "{name}: a request with a window needs {peak} bytes with {messages} stored messages, \
                 and {floor} bytes with {FEW}"
            );
            return Err(what.into());
        }
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn measure_store<S: HistoryStore>(
    name: &'static str,
    many: usize,
    repetitions: usize,
    open: impl AsyncFn() -> Result<S, BoxError>,
) -> Result<(), BoxError> {
    let (long, short) =
        (ConversationKey::new("bench", "long"), ConversationKey::new("bench", "short"));
    for (key, messages) in [(&long, many), (&short, FEW)] {
        let store = open().await?;
        fill(&store, key, messages).await?;
        store.close().await?;
        // The first run loads all messages, and stores which messages the next run needs.
        ask(open().await?, key).await?;
    }
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for _ in 0..repetitions {
        ours.add(ask(open().await?, &long).await?);
        floor.add(ask(open().await?, &short).await?);
    }
    Line::new("cold_range", "per service call", name, many, ours.median(), floor.median())
        .print()?;
    Ok(())
}

/// Stores this number of messages. Each turn is a question and its answer.
async fn fill(
    store: &impl HistoryStore,
    key: &ConversationKey,
    messages: usize,
) -> Result<(), BoxError> {
    let mut at = Revision::ABSENT;
    let mut turns = (0..messages / 2).peekable();
    while turns.peek().is_some() {
        let mut writes = Vec::new();
        for turn in turns.by_ref().take(TURNS_OF_SUBMISSION) {
            let question =
                Message::user(format!("Question {turn}: what is the state of order {turn}?"));
            let answer = Message::assistant(format!("Order {turn} was sent yesterday."));
            let id = MessageId { run: RunId::new(), index: 0 };
            let write = Write::new(key.clone(), id, at, [question.into(), answer.into()]);
            at = write.result();
            writes.push(write);
        }
        store.append(store.reserve().await?, writes).await?;
    }
    Ok(())
}

/// Asks a question, and returns the time until the answer is stored.
async fn ask(store: impl HistoryStore, key: &ConversationKey) -> Result<f64, BoxError> {
    let store = Arc::new(store);
    let replay = ReplayPolicy::default().with_window(Window::turns(50));
    let agent = ChatPipeline::builder(ScriptedModel::new([Step::text("It was sent.")]))
        .history(store.clone())
        .policy(PersistencePolicy::default().with_replay(replay))
        .build()?;
    let start = Instant::now();
    agent.ask(key.clone(), "And now?").await?;
    let time = us_since(start);
    store.close().await?;
    Ok(time)
}
