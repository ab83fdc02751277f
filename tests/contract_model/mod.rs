//! Whatever happens in a conversation, it is what a plain model of the contract says.
//!
//! A [case](case) is a conversation over the public API: approvals, hooks, changing sets of tools,
//! late results, returned calls, several messages in an answer, service calls that fail and
//! requests that are sent again in another mode. Each call has a token that occurs in its
//! arguments, its result and its error, so that whatever replaces something else is
//! seen. After every attempt four things are compared with the [model](model): what the model was
//! shown, the answer that the caller got, the stored messages, and the record of tool calls.
//!
//! `TOWER_CHAT_SEED` chooses other cases, `TOWER_CHAT_CASES` how many there are,
//! `TOWER_CHAT_SECONDS` for how long cases are begun, `TOWER_CHAT_THREADS` on how many threads,
//! `TOWER_CHAT_CASE` runs one of them alone, and `TOWER_CHAT_FEATURES` chooses what cases may have
//! in them. A million:
//!
//! ```text
//! TOWER_CHAT_CASES=1000000 cargo test --release -p tower-chat-tests --test contract_model conversations
//! ```
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in tests")]

mod case;
mod drive;
mod features;
mod model;
mod observe;
mod planted;
#[path = "../rng.rs"]
mod rng;
mod script;
mod tools;
mod world;

use std::{
    env,
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use self::{case::Case, drive::difference, features::Features, planted::Fault};

const SEED: u64 = 20_261_122;
/// What a debug build does in some ten seconds.
const CASES: u64 = 1_000;

#[test]
fn conversations_are_what_the_model_of_the_contract_says() {
    let seed = variable("TOWER_CHAT_SEED").unwrap_or(SEED);
    let alone: Option<u64> = variable("TOWER_CHAT_CASE");
    let seconds: Option<u64> = variable("TOWER_CHAT_SECONDS");
    let cases = match alone {
        Some(case) => case..case + 1,
        None => {
            0..variable("TOWER_CHAT_CASES").unwrap_or(if seconds.is_some() {
                u64::MAX
            } else {
                CASES
            })
        }
    };
    let features = Features::enabled();
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let next = AtomicU64::new(cases.start);
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    let work = || {
        while until.is_none_or(|until| Instant::now() < until)
            && let Some(case) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < cases.end)
        {
            if difference(&Case::random(seed, case, &features), None).is_some() {
                next.store(cases.end, Ordering::Relaxed);
                let mut failed = failed.lock().expect("nothing panics");
                *failed = Some(failed.map_or(case, |other| other.min(case)));
            }
        }
    };
    let threads = variable("TOWER_CHAT_THREADS")
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = *failed.lock().expect("nothing panics");
    if let Some(number) = failed {
        report(seed, number, &features);
    }
    println!("{} cases", next.load(Ordering::Relaxed).min(cases.end) - cases.start);
}

/// In how many cases a planted fault must show.
const FEW: u64 = 200;

#[test]
fn a_planted_wrong_call_is_found() {
    is_found(Fault::WrongCall);
}

#[test]
fn a_planted_lost_hook_is_found() {
    is_found(Fault::LostHook);
}

#[test]
fn a_planted_stale_number_is_found() {
    is_found(Fault::StaleNumber);
}

#[test]
fn a_planted_partial_answer_is_found() {
    is_found(Fault::PartialAnswer);
}

/// A case that is as the model says shows the fault once it is planted.
fn is_found(fault: Fault) {
    let features = Features::enabled();
    let shows = |case: &Case| difference(case, Some(fault)).is_some();
    let found = (0..FEW).map(|case| Case::random(SEED, case, &features)).find(shows);
    let found = found.unwrap_or_else(|| panic!("{fault:?} is not found in {FEW} cases"));
    assert_eq!(difference(&found, None), None);
}

/// Panics with the smallest case found, and with what repeats the whole one.
fn report(seed: u64, number: u64, features: &Features) -> ! {
    let case = shrunk(Case::random(seed, number, features));
    let difference = difference(&case, None).unwrap_or_default();
    panic!(
        "TOWER_CHAT_SEED={seed} TOWER_CHAT_CASE={number} cargo test -p tower-chat-tests \
         --test contract_model conversations\n{case}\n{difference}"
    );
}

/// The smallest case found that is different as well.
fn shrunk(mut case: Case) -> Case {
    while let Some(simpler) =
        case.simpler().into_iter().find(|case| difference(case, None).is_some())
    {
        case = simpler;
    }
    case
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value:?}")))
}
