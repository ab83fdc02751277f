//! The rates of one server of each kind, measured by clients in this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::task::block_in_place;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{HistoryStore, Revision, author::Write},
};
use tower_chat_postgres::{PostgresOptions, PostgresStore};
use tower_chat_redis::{RedisOptions, RedisStore};
use tower_chat_testkit::server::{PgBouncer, PoolMode, PostgresServer, RedisServer};
use tower_chat_transfer::delete_scope;

use super::{Search, append, connect, failed, started};
use crate::{Failure, Figures};

/// The number of measurements of each store.
const ROUNDS: usize = 3;

/// The number of writes to each conversation, the number of messages of each write, and the length
/// of their texts, as in `docs/scaling.md`. The JSON of a message has about 392 bytes.
const APPENDS: usize = 10;
const MESSAGES: usize = 4;
const TEXT: usize = 330;

/// The folder for the data of a server that waits for fsync.
const ON_DISK: &str = "/var/tmp";

/// Measured rates per second.
#[derive(Default)]
struct Rates {
    appends: Vec<f64>,
    loads: Vec<f64>,
}

pub(super) async fn run(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    postgres(search, figures).await?;
    redis(search, figures).await
}

async fn postgres(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    let server = block_in_place(|| PostgresServer::setup().durable_under(ON_DISK).start());
    let server = started(server)?;
    let sessions = started(PgBouncer::start(&server, PoolMode::Session, 100))?;
    let transactions = started(PgBouncer::start(&server, PoolMode::Transaction, 16))?;
    let options = || PostgresStore::options().with_max_connections(search.writers);
    let whole = || options().with_prepared_statements(false);
    let stores = [
        ("PostgreSQL", open(options(), &server.address("postgres")).await?),
        ("PostgreSQL, whole statements", open(whole(), &server.address("postgres")).await?),
        ("PgBouncer, sessions", open(options(), &sessions.address("postgres")).await?),
        ("PgBouncer, transactions", open(whole(), &transactions.address("postgres")).await?),
    ];
    let [(_, store), ..] = &stores;
    analyze(search, &server, store).await?;
    let of_server = measure(search, &stores, figures).await?;
    delete(store, "PostgreSQL", of_server, figures).await
}

/// Fills the tables and analyzes them, because autovacuum is disabled on this server. Without the
/// analysis, statements would be executed with the plans for empty tables.
async fn analyze(
    search: Search,
    server: &PostgresServer,
    store: &PostgresStore,
) -> Result<(), Failure> {
    let key = |number| ConversationKey::new("before", format!("{number:036}"));
    let fill = |number| fill(store.clone(), key(number));
    rate(search, fill, &AtomicUsize::new(0)).await?;
    let client = connect(server).await?;
    let done = client.batch_execute("ANALYZE").await;
    done.map_err(|error| failed("analyze the tables", error))
}

async fn redis(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    let start = |fsync| block_in_place(|| RedisServer::start_with(&["--appendfsync", fsync]));
    let servers = [("Redis, fsync always", "always"), ("Redis, fsync everysec", "everysec")];
    for (name, fsync) in servers {
        let server = started(start(fsync))?;
        let opened = RedisStore::connect(&server.address(0)).await;
        let store = opened.map_err(|error| failed("open the store", error))?;
        let empty = used_memory(&server).await?;
        let conversations = measure(search, &[(name, store.clone())], figures).await?;
        let used = used_memory(&server).await?.saturating_sub(empty);
        let each = used / conversations.max(1) as u64;
        figures.add(format!("{name}: memory of a conversation"), format!("{each} bytes"));
        delete(&store, name, conversations, figures).await?;
    }
    Ok(())
}

async fn used_memory(server: &RedisServer) -> Result<u64, Failure> {
    let settings = RedisOptions::new().server_settings(&server.address(0)).await;
    Ok(settings.map_err(|error| failed("read the settings of the server", error))?.used_memory)
}

async fn open(options: PostgresOptions, address: &str) -> Result<PostgresStore, Failure> {
    options.connect(address).await.map_err(|error| failed("open the store", error))
}

/// Measures the stores alternately, and adds the medians to the figures. Returns the number of
/// created conversations.
async fn measure<S: HistoryStore + Clone + 'static>(
    search: Search,
    stores: &[(&str, S)],
    figures: &mut Figures,
) -> Result<usize, Failure> {
    let mut rates: Vec<Rates> = stores.iter().map(|_| Rates::default()).collect();
    let made = Arc::new(AtomicUsize::new(0));
    for _ in 0..ROUNDS {
        for ((_, store), rates) in stores.iter().zip(&mut rates) {
            let before = made.load(Ordering::SeqCst);
            let fill = |number| fill(store.clone(), key(number));
            rates.appends.push(rate(search, fill, &made).await? * APPENDS as f64);
            let last = made.load(Ordering::SeqCst).max(before + 1);
            let read = Arc::new(AtomicUsize::new(0));
            let load = |number: usize| load(store.clone(), key(before + number % (last - before)));
            rates.loads.push(rate(search, load, &read).await?);
        }
    }
    for ((name, _), rates) in stores.iter().zip(rates) {
        figures.add(format!("{name}: appends a second"), median(rates.appends));
        figures.add(format!("{name}: loads of 40 messages a second"), median(rates.loads));
    }
    Ok(made.load(Ordering::SeqCst))
}

/// Returns the number of operations per second of all writers together. `act` receives the number
/// of an operation, and `next` is the number of the next one.
async fn rate<Done>(
    search: Search,
    act: impl Fn(usize) -> Done,
    next: &AtomicUsize,
) -> Result<f64, Failure>
where
    Done: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (began, first) = (Instant::now(), next.load(Ordering::SeqCst));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..search.writers {
        tasks.spawn(act(next.fetch_add(1, Ordering::SeqCst)));
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| failed("a measured task has panicked", error))??;
        if began.elapsed() < search.phase {
            tasks.spawn(act(next.fetch_add(1, Ordering::SeqCst)));
        }
    }
    let done = next.load(Ordering::SeqCst) - first;
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

fn key(number: usize) -> ConversationKey {
    ConversationKey::new("customer-00000001", format!("{number:036}"))
}

async fn fill<S: HistoryStore>(store: S, key: ConversationKey) -> Result<(), Failure> {
    let (run, mut revision) = (RunId::new(), Revision::ABSENT);
    for number in 0..APPENDS {
        let messages = (0..MESSAGES).map(|index| {
            let text = format!("{number} {index} {}", "x".repeat(TEXT));
            Arc::new(Message::user(text))
        });
        let index = u32::try_from(number * MESSAGES).unwrap_or(u32::MAX);
        let write = Write::new(key.clone(), MessageId { run, index }, revision, messages);
        let stored = append(&store, write).await;
        revision = stored.map_err(|error| failed("append a measured write", error))?;
    }
    Ok(())
}

async fn load<S: HistoryStore>(store: S, key: ConversationKey) -> Result<(), Failure> {
    let history = store.load(&key).await.map_err(|error| failed("load a conversation", error))?;
    match history.messages.len() {
        found if found == APPENDS * MESSAGES => Ok(()),
        found => Err(Failure::cannot_run(format!("{found} messages of {key} are stored"))),
    }
}

/// Deletes all conversations, one after the other, as `tower-chat delete` does.
async fn delete(
    store: &impl HistoryStore,
    name: &str,
    conversations: usize,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let began = Instant::now();
    let deleted = delete_scope(store, "customer-00000001", &mut |_| Ok(())).await;
    deleted.map_err(|error| failed("delete a scope", error))?;
    let rate = conversations as f64 / began.elapsed().as_secs_f64();
    figures.add(format!("{name}: conversations"), conversations);
    figures.add(format!("{name}: conversations deleted a second"), format!("{rate:.0}"));
    Ok(())
}

fn median(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).map_or(String::new(), |median| format!("{median:.0}"))
}
