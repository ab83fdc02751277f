//! Runs a small version of `server-crashes`, and its planted faults.

use tower_chat_campaigns::{
    Failure, Figures,
    power_cuts::can_record,
    server_crashes::{self, Arguments, Plant, StoreKind},
};
use tower_chat_testkit::{server::Missing, skip};

/// Runs the campaign, or returns `None` if a server or strace is missing.
fn run(store: StoreKind, crashes: u64, plant: Option<Plant>) -> Option<Result<Figures, Failure>> {
    if let Err(reason) = can_record() {
        skip("crashes of servers", reason);
        return None;
    }
    let found =
        server_crashes::run(Arguments { store, crashes, conversations: 12, seed: 1, plant });
    match found {
        Err(Failure::CannotRun { source: Some(source), .. }) if source.is::<Missing>() => {
            skip("crashes of servers", source);
            None
        }
        found => Some(found),
    }
}

#[test]
fn redis_keeps_acknowledged_runs_in_a_crash() {
    let Some(figures) = run(StoreKind::RedisAlways, 3, None) else { return };
    let figures = figures.unwrap();
    assert_eq!((figures.get("crashes"), figures.get("answers lost")), (Some("3"), Some("0")));
}

#[test]
fn redis_with_a_sync_each_second_loses_only_the_last_writes() {
    let Some(figures) = run(StoreKind::RedisEverysec, 3, None) else { return };
    let figures = figures.unwrap();
    assert_eq!(figures.get("crashes"), Some("3"));
    assert_ne!(figures.get("writers ahead of the server, refused"), Some("0"));
}

#[test]
fn postgresql_keeps_acknowledged_runs_in_a_crash() {
    let Some(figures) = run(StoreKind::Postgres, 2, None) else { return };
    let figures = figures.unwrap();
    assert_eq!((figures.get("crashes"), figures.get("answers lost")), (Some("2"), Some("0")));
}

#[test]
fn the_campaign_finds_servers_that_acknowledge_before_a_write_or_sync() {
    for store in [StoreKind::RedisAlways, StoreKind::Postgres] {
        for plant in [Plant::NoSyncs, Plant::NoWrites] {
            match run(store, 3, Some(plant)) {
                None => {}
                Some(Err(Failure::Found { .. })) => {}
                Some(other) => panic!("{plant:?} of {store:?} was not found: {other:?}"),
            }
        }
    }
}
