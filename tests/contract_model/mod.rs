//! Whatever happens in a conversation, it is what a plain model of the contract says.
//!
//! A [case](case) is a conversation over the public API: approvals, hooks, changing sets of tools,
//! late results, returned calls, several messages in an answer, service calls that fail,
//! requests that are sent again in another mode, messages that tools queue, runs that tools stop,
//! run ids that are used again, and copies in which approvals wait. Each call has a token that occurs in its
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
//! TOWER_CHAT_CASES=1000000 cargo test --release -p tower-chat-tests --test tests contract_model::conversations
//! ```

mod case;
mod drive;
mod features;
mod model;
mod observe;
mod own_loop;
mod planted;
mod script;
mod tools;
mod world;

use self::{case::Case, drive::difference, features::Features, planted::Fault};
use crate::search::{Search, shrunk};

const SEED: u64 = 20_261_122;
/// What a debug build does in some ten seconds.
const CASES: u64 = 500;

#[test]
fn conversations_are_what_the_model_of_the_contract_says() {
    let search = Search::new(SEED, CASES);
    let features = Features::enabled();
    let differs = |case| difference(&Case::random(search.seed, case, &features), None).is_some();
    let (failed, begun) = search.first(differs);
    if let Some(number) = failed {
        report(search.seed, number, &features);
    }
    println!("{begun} cases");
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

#[test]
fn a_planted_lost_queue_is_found() {
    is_found(Fault::LostQueue);
}

#[test]
fn a_planted_missed_stop_is_found() {
    is_found(Fault::MissedStop);
}

#[test]
fn a_planted_lost_input_is_found() {
    is_found(Fault::LostInput);
}

#[test]
fn a_planted_copied_approval_is_found() {
    is_found(Fault::CopiedApproval);
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
    let differs = |case: &Case| difference(case, None).is_some();
    let case = shrunk(Case::random(seed, number, features), Case::simpler, differs);
    let difference = difference(&case, None).unwrap_or_default();
    let command = Search::command(seed, number, "contract_model::conversations");
    panic!("{command}\n{case}\n{difference}");
}
