//! Whatever goes wrong, the history is what the contract says, and tools run as often as declared.
//!
//! A case is a conversation in which, by its seed, the store fails, is late or loses an answer, the
//! model and the tools fail, hang or stop halfway, callers go away, and processes die. After every
//! attempt all that a reader sees is held against a [model](model) of the contract.
//!
//! Other tests [kill](killed) real processes at every step, and let [two](two) of them run one
//! conversation at the same time.
//!
//! `TOWER_CHAT_SEED` chooses other cases, `TOWER_CHAT_CASES` how many there are, and
//! `TOWER_CHAT_CASE` runs one of them alone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in tests")]

mod case;
mod counters;
mod killed;
mod model;
mod process;
#[path = "../rng.rs"]
mod rng;
mod rules;
mod scenario;
mod script;
mod scripted_model;
mod trace;
mod trace_index;
mod two;
mod world;

use std::{
    env,
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use self::{
    case::Case,
    counters::Counters,
    scenario::{complaint, complaint_and_counters},
};

const SEED: u64 = 20_261_121;
const CASES: u64 = 2_500;

/// Cases of other seeds, or beyond the budget, that failed once.
const FAILED_ONCE: [(u64, u64); 5] =
    [(SEED, 3_606), (7, 2_036), (7, 2_269), (7, 4_001), (7, 5_525)];

#[test]
fn whatever_goes_wrong_the_history_is_what_the_contract_says() {
    let seed = variable("TOWER_CHAT_SEED").unwrap_or(SEED);
    let alone: Option<u64> = variable("TOWER_CHAT_CASE");
    let cases = match alone {
        Some(case) => case..case + 1,
        None => 0..variable("TOWER_CHAT_CASES").unwrap_or(CASES),
    };
    let counters = Counters::default();
    let next = AtomicU64::new(cases.start);
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    let work = || {
        while let Some(case) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < cases.end)
        {
            if complaint_and_counters(&Case::random(seed, case), &counters).is_some() {
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
        report(seed, number);
    }
    if cases.end - cases.start >= 1_000 {
        counters.check();
    }
}

#[test]
fn what_failed_once_holds() {
    for (seed, number) in FAILED_ONCE {
        if complaint(&Case::random(seed, number)).is_some() {
            report(seed, number);
        }
    }
}

/// Panics with the smallest case found, and with what repeats the whole one.
fn report(seed: u64, number: u64) -> ! {
    let case = shrunk(Case::random(seed, number));
    let complaint = complaint(&case).unwrap_or_default();
    panic!(
        "TOWER_CHAT_SEED={seed} TOWER_CHAT_CASE={number} cargo test -p tower-chat-tests \
         --test faults whatever\n{complaint}\n{case:#?}"
    );
}

/// The smallest case found that is wrong as well.
fn shrunk(mut case: Case) -> Case {
    while let Some(simpler) = case.simpler().into_iter().find(|case| complaint(case).is_some()) {
        case = simpler;
    }
    case
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value:?}")))
}
