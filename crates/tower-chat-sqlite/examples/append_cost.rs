//! Compares the time of
//! - an append with that of the same statements on a bare connection;
//! - group commit with that of one transaction per append;
//! - a load with that of reading and parsing the same rows.
//!
//! Prints medians in microseconds.
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement, not part of the crate")]

use std::{sync::Arc, time::Instant};

use rusqlite::{Connection, params};
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, format,
    store::{HistoryStore, Revision, author::Write},
};
use tower_chat_sqlite::SqliteStore;

const ROUNDS: usize = 2000;
const CONVERSATIONS: usize = 64;
const EACH: usize = 40;

fn messages() -> [Arc<Message>; 2] {
    [Message::user("q".repeat(280)).into(), Message::assistant("a".repeat(400)).into()]
}

struct Floor {
    connection: Connection,
    bodies: Vec<String>,
    sequence: i64,
}

impl Floor {
    fn open(path: &std::path::Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "synchronous", "FULL").unwrap();
        connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(())).unwrap();
        let bodies = messages().iter().map(|message| format::encode(message)).collect();
        Self { connection, bodies, sequence: 0 }
    }

    fn append(&mut self, conversation: &str) {
        let run = |sql| self.connection.prepare_cached(sql).unwrap().execute([]).unwrap();
        run("BEGIN IMMEDIATE");
        let find = "SELECT id, incarnation, (SELECT place FROM messages
            WHERE place BETWEEN id << 32 AND (id << 32) + 4294967295
            ORDER BY place DESC LIMIT 1)
            FROM conversations WHERE scope = ?1 AND conversation = ?2";
        let mut find = self.connection.prepare_cached(find).unwrap();
        let number = find.query_row(["floor", conversation], |row| row.get(0));
        let number: i64 = number.unwrap_or_else(|_| {
            let sql =
                "INSERT INTO conversations (scope, conversation, incarnation) VALUES ('floor', ?1, 1)";
            self.connection.prepare_cached(sql).unwrap().insert([conversation]).unwrap()
        });
        let sql = "INSERT INTO messages (place, run, run_index, body) VALUES (?1, ?2, ?3, ?4)";
        let mut insert = self.connection.prepare_cached(sql).unwrap();
        for body in &self.bodies {
            self.sequence += 1;
            let row_key = (number << 32) | self.sequence;
            insert.execute(params![row_key, [7_u8; 16], self.sequence, body]).unwrap();
        }
        run("COMMIT");
    }
}

async fn append(store: &SqliteStore, key: &ConversationKey, run: RunId, at: &mut Revision) {
    let slot = store.reserve().await.unwrap();
    let id = MessageId { run, index: u32::try_from(at.sequence).unwrap() };
    let write = Write::new(key.clone(), id, *at, messages());
    *at = store.append(slot, vec![write]).await.unwrap();
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

async fn uncontended(store: SqliteStore, mut floor: Floor, label: &str) {
    let key = ConversationKey::new("measured", label);
    let (run, mut at) = (RunId::new(), Revision::ABSENT);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        append(&store, &key, run, &mut at).await;
        ours.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        floor.append(label);
        bare.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let (ours, bare) = (median(ours), median(bare));
    println!("uncontended, {label}: {ours:.1} us, bare {bare:.1} us, ratio {:.3}", ours / bare);
}

async fn load(store: SqliteStore, bare: Connection) {
    let key = ConversationKey::new("loaded", "long");
    let messages: Vec<Arc<Message>> = (0..5_000).flat_map(|_| messages()).collect();
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key.clone(), id, Revision::ABSENT, messages);
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    let sql = "SELECT body FROM messages";
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let start = Instant::now();
        assert_eq!(store.load(&key).await.unwrap().messages.len(), 10_000);
        ours.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        let mut rows = bare.prepare_cached(sql).unwrap();
        let parse = |row: &rusqlite::Row<'_>| {
            let body = row.get_ref(0)?.as_str()?;
            Ok(serde_json::from_str::<serde_json::Value>(body).unwrap())
        };
        let parsed: Vec<_> = rows.query_map([], parse).unwrap().collect();
        assert_eq!(parsed.len(), 10_000);
        theirs.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!("load of 10,000: {ours:.0} us, bare {theirs:.0} us, ratio {:.3}", ours / theirs);
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let open = |name: &str| runtime.block_on(SqliteStore::open(folder.path().join(name))).unwrap();
    // The bare connection writes to another file with the same schema,
    let floor = folder.path().join("floor.db");
    drop(open("floor.db"));
    let store = open("cost.db");
    runtime.block_on(uncontended(store.clone(), Floor::open(&floor), "in block_on"));
    let task = uncontended(store.clone(), Floor::open(&floor), "in a task");
    runtime.block_on(runtime.spawn(task)).unwrap();

    drop(open("load.db"));
    let bare = Connection::open(folder.path().join("load.db")).unwrap();
    runtime.block_on(load(open("load.db"), bare));

    let before = store.statistics();
    let start = Instant::now();
    let tasks: Vec<_> = (0..CONVERSATIONS)
        .map(|number| {
            let store = store.clone();
            runtime.spawn(async move {
                let key = ConversationKey::new("many", number.to_string());
                let (run, mut at) = (RunId::new(), Revision::ABSENT);
                for _ in 0..EACH {
                    append(&store, &key, run, &mut at).await;
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let ours = start.elapsed().as_secs_f64() * 1e6 / (CONVERSATIONS * EACH) as f64;
    let after = store.statistics();
    let mut floor = Floor::open(&floor);
    let start = Instant::now();
    for _ in 0..EACH {
        for number in 0..CONVERSATIONS {
            floor.append(&number.to_string());
        }
    }
    let bare = start.elapsed().as_secs_f64() * 1e6 / (CONVERSATIONS * EACH) as f64;
    println!(
        "{CONVERSATIONS} conversations: {ours:.1} us, one transaction each {bare:.1} us, gain {:.2}; \
         {} writes in {} commits",
        bare / ours,
        after.writes - before.writes,
        after.commits - before.commits
    );
}
