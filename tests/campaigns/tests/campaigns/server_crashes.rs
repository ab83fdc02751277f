//! `server-crashes` in small, and its planted faults.

use tower_chat_campaigns::{
    Failure, Figures,
    power_cuts::can_record,
    server_crashes::{self, Arguments, Plant, StoreKind},
};
use tower_chat_testkit::{server::Missing, skip};

/// `None`, once the test is named as skipped, where a server or strace is missing.
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
fn what_redis_acknowledged_is_there_after_a_crash() {
    let Some(figures) = run(StoreKind::RedisAlways, 3, None) else { return };
    let figures = figures.unwrap();
    assert_eq!((figures.get("crashes"), figures.get("answers lost")), (Some("3"), Some("0")));
}

#[test]
fn redis_that_syncs_every_second_loses_the_end_alone() {
    let Some(figures) = run(StoreKind::RedisEverysec, 3, None) else { return };
    let figures = figures.unwrap();
    assert_eq!(figures.get("crashes"), Some("3"));
    assert_ne!(figures.get("writers ahead of the server, refused"), Some("0"));
}

#[test]
fn what_postgresql_acknowledged_is_there_after_a_crash() {
    let Some(figures) = run(StoreKind::Postgres, 2, None) else { return };
    let figures = figures.unwrap();
    assert_eq!((figures.get("crashes"), figures.get("answers lost")), (Some("2"), Some("0")));
}

#[test]
fn servers_that_do_not_sync_or_do_not_write_are_found() {
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
