//! Runs a small version of `histories`, and its planted faults.

use std::path::PathBuf;

use tempfile::tempdir;
use tower_chat_campaigns::{
    Failure, Figures,
    histories::{Arguments, Plant, StoreKind, run},
};

fn arguments(store: StoreKind, cases: u64) -> Arguments {
    Arguments {
        cases,
        seed: 1,
        first: 0,
        stores: vec![store],
        clients: 3,
        operations: 8,
        plant: None,
        folder: None,
        check: None,
        program: Some(PathBuf::from(env!("CARGO_BIN_EXE_tower-chat-campaigns"))),
    }
}

fn count(figures: &Figures, name: &str) -> u64 {
    figures.get(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}"))
}

/// Runs a small campaign, and checks that every counted event happened.
fn assert_linearizable(store: StoreKind, name: &str) {
    let figures = match run(arguments(store, 40)) {
        Err(Failure::CannotRun { what, .. }) if what.contains("is not installed") => {
            return tower_chat_testkit::skip(&format!("histories of {name}"), what);
        }
        other => other.unwrap_or_else(|failure| panic!("{failure}")),
    };
    assert_eq!(count(&figures, &format!("{name}: histories")), 40);
    assert_eq!(count(&figures, &format!("{name}: operations that failed")), 0);
    for happened in
        ["operations with unknown outcome", "conflicts", "takeovers", "discards", "forks", "prunes"]
    {
        assert_ne!(count(&figures, &format!("{name}: {happened}")), 0, "{happened}: {figures}");
    }
}

#[test]
fn histories_of_sqlite_are_linearizable() {
    assert_linearizable(StoreKind::Sqlite, "sqlite");
}

#[test]
fn histories_of_postgres_are_linearizable() {
    assert_linearizable(StoreKind::Postgres, "postgres");
}

#[test]
fn histories_of_redis_are_linearizable() {
    assert_linearizable(StoreKind::Redis, "redis");
}

/// Checks that the campaign finds the fault, and finds it again in the saved history.
fn assert_found(plant: Plant) {
    let folder = tempdir().expect("a folder");
    let planted = Arguments {
        plant: Some(plant),
        folder: Some(folder.path().to_owned()),
        ..arguments(StoreKind::Sqlite, 200)
    };
    let Err(Failure::Found { case, .. }) = run(planted.clone()) else { panic!("it is found") };
    let file = folder.path().join(format!("sqlite-1-{case}.jsonl"));
    let again = run(Arguments { check: Some(file), ..planted });
    assert!(matches!(again, Err(Failure::Found { .. })), "{again:?}");
}

#[test]
fn the_checker_finds_a_planted_lost_update() {
    assert_found(Plant::LostUpdate);
}

#[test]
fn the_checker_finds_a_planted_duplicate() {
    assert_found(Plant::Duplicate);
}

#[test]
fn the_checker_finds_a_planted_reordering() {
    assert_found(Plant::Reordering);
}

#[test]
fn the_checker_finds_a_planted_dirty_read_of_a_staged_run() {
    assert_found(Plant::DirtyRead);
}

#[test]
fn the_checker_finds_two_planted_holders_of_one_lease() {
    assert_found(Plant::TwoHolders);
}

#[test]
fn the_checker_finds_a_planted_copy_of_a_message_after_the_end_of_a_fork() {
    assert_found(Plant::LateFork);
}

#[test]
fn the_checker_finds_a_planted_loss_of_a_summary() {
    assert_found(Plant::LostSummary);
}
