//! Runs `soak` for `TOWER_CHAT_SECONDS`, and its planted faults.

use std::{env, path::PathBuf};

use tower_chat_campaigns::{
    Failure, Figures,
    soak::{self, Arguments, Plant, StoreKind},
};

const SECONDS: u64 = 8;

fn run(seconds: u64, plant: Option<Plant>) -> Result<Figures, Failure> {
    soak::run(Arguments {
        seconds,
        conversations: 500,
        seed: 1,
        store: StoreKind::Sqlite,
        plant,
        program: Some(PathBuf::from(env!("CARGO_BIN_EXE_tower-chat-campaigns"))),
    })
}

/// Returns the description of the fault that the campaign finds. A short campaign may miss the
/// fault on a busy machine, and is then repeated with more time.
fn found(plant: Plant) -> String {
    let mut missed = Vec::new();
    for seconds in [SECONDS, 4 * SECONDS, 16 * SECONDS] {
        match run(seconds, Some(plant)) {
            Err(Failure::Found { what, .. }) => return what,
            Err(other) => panic!("{plant:?}: {other:?}"),
            Ok(figures) => missed.push(figures),
        }
    }
    panic!("{plant:?} was not found: {missed:?}")
}

#[test]
fn two_processes_lose_no_answer_and_their_memory_and_files_do_not_grow() {
    let seconds = env::var("TOWER_CHAT_SECONDS").ok().map(|seconds| seconds.parse().unwrap());
    let figures = run(seconds.unwrap_or(SECONDS), None).unwrap();
    println!("{figures}");
    for what in ["answers", "killed processes", "restarts of a store", "backups compared"] {
        assert!(figures.get(what).is_some(), "no {what}: {figures}");
    }
}

#[test]
fn the_soak_finds_stores_that_are_not_closed_by_their_open_files() {
    let what = found(Plant::Leak);
    assert!(what.contains("open files grow"), "{what}");
}

#[test]
fn the_soak_finds_a_run_that_was_never_stored() {
    let what = found(Plant::LostWrite);
    assert!(what.contains("its caller received the answer"), "{what}");
}

#[test]
fn the_soak_finds_a_call_without_a_result() {
    let what = found(Plant::DanglingCall);
    assert!(what.contains("its caller received the answer"), "{what}");
}
