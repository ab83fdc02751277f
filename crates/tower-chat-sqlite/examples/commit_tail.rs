//! Measures the distribution of the times of appends, and the size of the write-ahead log. The
//! first measurement only appends. In the second measurement, other tasks continuously load a long
//! conversation during the appends. Prints microseconds and bytes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a measurement, not part of the crate"
)]

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{HistoryStore, Revision, author::Write},
};
use tower_chat_sqlite::{Durability, SqliteStore};

const APPENDS: usize = 20_000;

fn messages() -> [Arc<Message>; 2] {
    [Message::user("q".repeat(280)).into(), Message::assistant("a".repeat(400)).into()]
}

async fn append(store: &SqliteStore, key: &ConversationKey, run: RunId, at: &mut Revision) {
    let slot = store.reserve().await.unwrap();
    let id = MessageId { run, index: u32::try_from(at.sequence).unwrap() };
    let write = Write::new(key.clone(), id, *at, messages());
    *at = store.append(slot, vec![write]).await.unwrap();
}

async fn measure(store: &SqliteStore, file: &Path, what: &str) {
    let log = file.with_extension("db-wal");
    let key = ConversationKey::new("measured", what);
    let (run, mut at, mut largest) = (RunId::new(), Revision::ABSENT, 0);
    let mut times = Vec::with_capacity(APPENDS);
    let all = Instant::now();
    for number in 0..APPENDS {
        let start = Instant::now();
        append(store, &key, run, &mut at).await;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        if number % 16 == 0 {
            largest = largest.max(fs::metadata(&log).unwrap().len());
        }
    }
    let mean = all.elapsed().as_secs_f64() * 1e6 / APPENDS as f64;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{what}: mean {mean:.0}, p50 {:.0}, p99 {:.0}, p99.9 {:.0}, max {:.0} us; log {largest} bytes",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    for durability in [Durability::Full, Durability::Normal] {
        let file = folder.path().join(format!("{durability:?}.db"));
        let options = SqliteStore::options().with_durability(durability);
        let store = runtime.block_on(options.open(&file)).unwrap();
        runtime.block_on(measure(&store, &file, &format!("{durability:?}, alone")));

        let stop = Arc::new(AtomicBool::new(false));
        let (reader, stopped) = (store.clone(), stop.clone());
        let loading = runtime.spawn(async move {
            let key = ConversationKey::new("measured", format!("{durability:?}, alone"));
            let mut loads = 0;
            while !stopped.load(Ordering::Relaxed) {
                reader.load(&key).await.unwrap();
                loads += 1;
            }
            loads
        });
        runtime.block_on(measure(&store, &file, &format!("{durability:?}, with a reader")));
        stop.store(true, Ordering::Relaxed);
        let loads: usize = runtime.block_on(loading).unwrap();
        println!("{durability:?}: {loads} loads meanwhile");
        drop(store);
    }
}
