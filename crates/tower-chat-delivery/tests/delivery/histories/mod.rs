//! Tests with generated histories, in which readers disconnect, reconnect and read slowly, runs are
//! stopped, and processes die or lose their lease. Every reader must receive each update once and
//! in order, and the end of the run after the last update.
//!
//! `TOWER_CHAT_SEED`, `TOWER_CHAT_CASES` and `TOWER_CHAT_CASE` select the cases.

mod case;
mod client;
mod planted;
mod remote_log;

use std::sync::Arc;

use tokio::runtime::Runtime;
use tower_chat::{
    postgres::{PostgresStore, PostgresUpdateLog},
    redis::{RedisStore, RedisUpdateLog},
};
use tower_chat_delivery::{
    MemoryUpdateLog, SqliteUpdateLog, UpdateLog, UpdateLogOptions, contract::ManualClock,
};

use self::{
    case::Case,
    planted::{Fault, PlantedLog},
    remote_log::RemoteLog,
};
use tower_chat_testkit::{
    server::{PostgresServer, RedisServer},
    skip,
};

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Executes generated cases, `cases` by default, each with a log that `open` opens.
fn check(cases: u64, mut open: impl FnMut(UpdateLogOptions) -> Arc<dyn UpdateLog>) {
    let seed = variable("TOWER_CHAT_SEED").unwrap_or(1);
    let selected = variable("TOWER_CHAT_CASE");
    let count = variable("TOWER_CHAT_CASES").unwrap_or(cases);
    let numbers = selected.map_or(0..count, |case| case..case + 1);
    for number in numbers {
        let clock = ManualClock::new();
        let log = open(UpdateLogOptions::default().with_clock(clock.clock()));
        if let Err(fault) = Case::new(seed, number, log, clock).run() {
            panic!("TOWER_CHAT_SEED={seed} TOWER_CHAT_CASE={number}: {fault}");
        }
    }
}

#[test]
fn readers_of_a_log_in_memory_receive_each_update_once() {
    check(150, |options| Arc::new(MemoryUpdateLog::with_options(options)));
}

#[test]
fn readers_of_a_log_in_a_file_receive_each_update_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    check(40, |options| {
        number += 1;
        let path = folder.path().join(format!("{number}.db"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Arc::new(runtime.block_on(SqliteUpdateLog::open_with(path, options)).unwrap())
    });
}

/// Creates the runtime on which the connections to a server are used.
fn connected() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn readers_of_a_log_in_postgresql_receive_each_update_once() {
    let server = match PostgresServer::start() {
        Ok(server) => server,
        Err(missing) => return skip("histories over PostgreSQL", missing),
    };
    let runtime = connected();
    let store = runtime.block_on(PostgresStore::connect(&server.address("postgres"))).unwrap();
    check(20, |options| {
        let log = runtime.block_on(PostgresUpdateLog::from_store(&store, options)).unwrap();
        Arc::new(RemoteLog::new(log, runtime.handle().clone()))
    });
}

#[test]
fn readers_of_a_log_in_redis_receive_each_update_once() {
    let server = match RedisServer::start_with(&[]) {
        Ok(server) => server,
        Err(missing) => return skip("histories over Redis", missing),
    };
    let runtime = connected();
    let store = runtime.block_on(RedisStore::connect(&server.address(0))).unwrap();
    check(20, |options| {
        let log = RedisUpdateLog::from_store(&store, options);
        Arc::new(RemoteLog::new(log, runtime.handle().clone()))
    });
}

/// Checks that the tests with generated histories detect the faults of a faulty log.
#[test]
fn generated_histories_detect_a_log_that_loses_or_repeats_updates_or_ends_early() {
    for fault in [Fault::Lost, Fault::Doubled, Fault::EarlyEnd] {
        let is_found = (0..50).any(|number| {
            let clock = ManualClock::new();
            let options = UpdateLogOptions::default().with_clock(clock.clock());
            let log = MemoryUpdateLog::with_options(options);
            let planted = PlantedLog::new(log, fault);
            Case::new(7, number, Arc::new(planted), clock).run().is_err()
        });
        assert!(is_found, "{fault:?} is not found");
    }
}
