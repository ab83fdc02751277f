//! Compares generated conversations with a plain model of the contract.
//!
//! A [case](case) is a conversation over the public API. The cases combine:
//!
//! - calls: approvals, also with other arguments than those of the model, hooks (which change or
//!   drop what is stored of a call), changing sets of tools, results that arrive in a later run,
//!   calls that the run returns to the caller
//! - answers of several messages, failing service calls, requests that are sent again in another
//!   mode, run ids that are used again
//! - messages that tools queue, and runs that tools stop
//! - copies of conversations with pending approvals
//! - answers in which the service has summarized the earlier messages, and changes of the service
//! - pictures and documents in messages of the user and in results, with a policy by which old ones
//!   are not sent again
//! - branches of conversations: copies of the turns before a message, edited questions and
//!   regenerated answers
//! - summaries: of conversations above a limit, on request, added to the store, and removed
//!
//! Each call has a unique token in its arguments, its result and its error. The test therefore
//! detects if values of two calls are exchanged. After every attempt (one execution of a request),
//! these are compared with the [model](model):
//!
//! - the messages that the model client and the service that writes summaries have received
//! - the answer for the caller
//! - the stored messages, the summaries, and the record of tool calls
//!
//! Environment variables set the seed (`TOWER_CHAT_SEED`), the number of cases (`TOWER_CHAT_CASES`)
//! or the duration of the test (`TOWER_CHAT_SECONDS`), the number of threads
//! (`TOWER_CHAT_THREADS`), and the features of cases (`TOWER_CHAT_FEATURES`). `TOWER_CHAT_CASE`
//! selects one case. This command executes a million cases:
//!
//! ```text
//! TOWER_CHAT_CASES=1000000 cargo test --release -p tower-chat-tests --test tests contract_model::conversations
//! ```

mod approvals;
mod branches;
mod case;
mod compaction;
mod drive;
mod features;
mod media;
mod model;
mod observe;
mod own_loop;
mod planted;
mod script;
mod summaries;
mod tools;
mod world;

use self::{
    case::Case,
    drive::{difference, difference_of_loads},
    features::Features,
    planted::{Fault, Loads},
};
use crate::search::{Search, shrunk};

const SEED: u64 = 20_261_122;
/// The default number of cases. A debug build needs about ten seconds for them.
const CASES: u64 = 500;

#[test]
fn conversations_are_stored_as_the_model_of_the_contract_predicts() {
    let search = Search::new(SEED, CASES);
    let features = Features::enabled();
    let differs = |case| difference(&Case::random(search.seed, case, &features), None).is_some();
    let (failed, begun) = search.first(differs);
    if let Some(number) = failed {
        report(search.seed, number, &features);
    }
    println!("{begun} cases");
}

/// With a window, runs load only a part of the conversation. The service calls must be the same as
/// with stores that load all messages, and everything else as the model predicts.
#[test]
fn ranges_do_not_change_what_the_model_receives() {
    let search = Search::new(SEED, CASES);
    let features = Features::enabled();
    let compared = |number| {
        let case = Case::random(search.seed, number, &features);
        let turns = if number % 3 == 0 { 2 } else { 1 };
        (difference_of_loads(&case, turns, Loads::Ranges), case)
    };
    if let (Some(number), _) = search.first(|number| compared(number).0.is_some()) {
        let (difference, case) = compared(number);
        let command = Search::command(search.seed, number, "contract_model::ranges");
        panic!("{command}\n{case}\n{}", difference.unwrap_or_default());
    }
}

/// The number of cases in which the test must detect a planted fault.
const FEW: u64 = 200;

#[test]
fn the_comparison_of_loads_finds_a_planted_short_range() {
    let features = Features::enabled();
    let mut cases = (0..FEW).map(|case| Case::random(SEED, case, &features));
    let differs = |case: Case| difference_of_loads(&case, 1, Loads::ShortRanges).is_some();
    assert!(cases.any(differs));
}

#[test]
fn the_model_of_the_contract_finds_a_planted_wrong_call() {
    is_found(Fault::WrongCall);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_lost_hook() {
    is_found(Fault::LostHook);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_stale_number() {
    is_found(Fault::StaleNumber);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_partial_answer() {
    is_found(Fault::PartialAnswer);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_lost_queue() {
    is_found(Fault::LostQueue);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_missed_stop() {
    is_found(Fault::MissedStop);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_lost_input() {
    is_found(Fault::LostInput);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_copied_approval() {
    is_found(Fault::CopiedApproval);
}

#[test]
fn the_model_of_the_contract_finds_planted_lost_arguments() {
    is_found(Fault::LostArguments);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_old_medium() {
    is_found(Fault::OldMediumSent);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_lost_issuer() {
    is_found(Fault::LostIssuer);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_long_branch() {
    is_found(Fault::LongBranch);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_hidden_message() {
    is_found(Fault::HiddenMessage);
}

#[test]
fn the_model_of_the_contract_finds_a_planted_lost_undo() {
    is_found(Fault::LostUndo);
}

/// Asserts that the fault is detected: a case differs from the model with the fault, and agrees
/// with it without the fault.
fn is_found(fault: Fault) {
    let features = Features::enabled();
    let shows = |case: &Case| difference(case, Some(fault)).is_some();
    let found = (0..FEW).map(|case| Case::random(SEED, case, &features)).find(shows);
    let found = found.unwrap_or_else(|| panic!("{fault:?} is not found in {FEW} cases"));
    assert_eq!(difference(&found, None), None);
}

/// Panics with the smallest case found, and with the command that repeats the original case.
fn report(seed: u64, number: u64, features: &Features) -> ! {
    let differs = |case: &Case| difference(case, None).is_some();
    let case = shrunk(Case::random(seed, number, features), Case::simpler, differs);
    let difference = difference(&case, None).unwrap_or_default();
    let command = Search::command(seed, number, "contract_model::conversations");
    panic!("{command}\n{case}\n{difference}");
}
