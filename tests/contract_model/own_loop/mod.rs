//! Tests with an application's own tool loop. In generated conversations, messages that the loop
//! sends repeatedly must be stored once, and every service call must send the complete
//! conversation.
//!
//! The cases combine:
//!
//! - With each service call, the loop sends all messages, the messages of its run, the new
//!   messages, or the last two turns (questions with everything up to their answers).
//! - The message types of the loop keep or lose ids, reasoning and metadata, and may join the
//!   results of an answer's calls.
//! - Tools queue messages, and the loop stops turns between tools.
//! - Service calls fail and are repeated, answers are lost, and the loop continues in another
//!   process.
//! - Run ids are used again, and conversations are copied while calls wait for approval.
//!
//! Texts and ids repeat, so that only the position of a message identifies it.

mod case;
mod drive;
mod planted;

use tower_chat::{ConversationKey, Message, Part};

use self::{case::Case, drive::difference, planted::FAULTS};
use crate::{
    contract_model::FEW,
    search::{Search, shrunk},
};

fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

/// Returns the texts of a message. Each result is a separate text, since one message may contain
/// several results.
fn words(message: &Message) -> Vec<String> {
    let results: Vec<String> =
        message.results().map(|result| format!("tool {}", result.text())).collect();
    if !results.is_empty() {
        return results;
    }
    let reasoning = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => Some(format!("({}) ", reasoning.text)),
        _ => None,
    });
    let reasoning = reasoning.collect::<String>();
    let calls = message.calls().map(|call| format!("{} ", call.name)).collect::<String>();
    vec![format!(
        "{} {reasoning}{}{calls}",
        format!("{:?}", message.role).to_lowercase(),
        message.text()
    )]
}

const SEED: u64 = 20_261_126;
const CASES: u64 = 500;

#[test]
fn a_tool_loop_with_its_own_types_stores_each_message_once() {
    let search = Search::new(SEED, CASES);
    let differs = |case| difference(&Case::random(search.seed, case), None).is_some();
    let (failed, begun) = search.first(differs);
    if let Some(number) = failed {
        let differs = |case: &Case| difference(case, None).is_some();
        let case = shrunk(Case::random(search.seed, number), Case::simpler, differs);
        let difference = difference(&case, None).unwrap_or_default();
        let command = Search::command(search.seed, number, "contract_model::own_loop");
        panic!("{command}\n{case}\n{difference}");
    }
    println!("{begun} cases");
}

#[test]
fn the_test_finds_planted_faults_below_a_tool_loop_with_its_own_types() {
    for fault in FAULTS {
        let shows = |case: &Case| difference(case, Some(fault)).is_some();
        let found = (0..FEW).map(|case| Case::random(SEED, case)).find(shows);
        let found = found.unwrap_or_else(|| panic!("{fault:?} is not found in {FEW} cases"));
        assert_eq!(difference(&found, None), None, "{fault:?}");
    }
}
