//! Every transcript replays valid under every combination of policies, whatever is wrong with it.
//!
//! `TOWER_CHAT_SEED` chooses other cases, `TOWER_CHAT_CASES` how many there are, and
//! `TOWER_CHAT_CASE` runs one of them alone. `TOWER_CHAT_DATA` names the recorded data.

mod case;
mod damage;
mod plan;
mod properties;
#[path = "../rng.rs"]
mod rng;
mod transcripts;

use std::{
    env,
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use self::{case::Case, transcripts::say};

const SEED: u64 = 20_250_514;
const CASES: u64 = 12_000;

#[test]
fn every_transcript_replays_valid_under_every_combination_of_policies() {
    let transcripts = transcripts::all();
    let seed = variable("TOWER_CHAT_SEED").unwrap_or(SEED);
    let alone: Option<u64> = variable("TOWER_CHAT_CASE");
    let cases = match alone {
        Some(case) => case..case + 1,
        None => 0..variable("TOWER_CHAT_CASES").unwrap_or(CASES),
    };
    say(&format!("seed {seed}, cases {cases:?}, {} transcripts", transcripts.len()));
    let next = AtomicU64::new(cases.start);
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    let work = || {
        while let Some(case) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < cases.end)
        {
            if Case::random(seed, case, &transcripts).complaint().is_some() {
                next.store(cases.end, Ordering::Relaxed);
                let mut failed = failed.lock().expect("nobody panics");
                *failed = Some(failed.map_or(case, |other| other.min(case)));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = *failed.lock().expect("nobody panics");
    if let Some(number) = failed {
        let case = Case::random(seed, number, &transcripts).shrunk();
        let complaint = case.complaint().unwrap_or_default();
        panic!(
            "seed {seed}, case {number} (TOWER_CHAT_SEED={seed} TOWER_CHAT_CASE={number}): \
             {complaint}\n{case:?}"
        );
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value:?}")))
}
