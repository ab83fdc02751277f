//! Every recorded file of the providers is asserted on by the recorded tests of one leaf crate or
//! the other, or is listed with the reason.
//!
//! Which exchanges a crate plays is asked of the modules with which its own tests choose them:
//! `tower-chat-openai` plays all of Chat Completions and Responses, and `tower-chat-genai` all of the
//! wires that [`wire::Asked`] knows. Those tests stop at the first exchange that is not read and
//! asked as it was. An exchange that carries a conversation to an unknown address fails the reading
//! itself.
//!
//! The recorded data lie in the folder that `TOWER_CHAT_DATA` names; without it the test says that
//! it is skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic is a failing test"
)]
#![allow(dead_code, reason = "the tests of the leaves use more of these modules")]
#![allow(unreachable_pub, reason = "nothing outside uses these tests")]

#[path = "../../crates/tower-chat-genai/tests/genai/cassettes.rs"]
mod cassettes;
#[path = "../../crates/tower-chat-genai/tests/genai/leftovers.rs"]
mod leftovers;
#[path = "../../crates/tower-chat-genai/tests/genai/plain.rs"]
mod plain;
#[path = "../../crates/tower-chat-genai/tests/genai/said.rs"]
mod said;
#[path = "../../crates/tower-chat-genai/tests/genai/wire.rs"]
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use crate::cassettes::{Api, Exchange};

/// Which crate asserts on an exchange, or why none does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Coverage {
    OpenAi,
    GenAi,
    NoModelCall,
    Excluded(&'static str),
}

fn coverage(exchange: &Exchange) -> Coverage {
    let api = exchange.api().unwrap();
    let excluded = wire::EXCLUDED.iter().find(|(known, _)| *known == api);
    match (api, excluded) {
        (Api::Other, _) => Coverage::NoModelCall,
        (_, Some((_, reason))) => Coverage::Excluded(reason),
        (Api::ChatCompletions | Api::Responses, None) => Coverage::OpenAi,
        (_, None) => {
            assert!(wire::Asked::of(exchange).is_some(), "{}: no test plays it", exchange.source);
            Coverage::GenAi
        }
    }
}

#[derive(Debug, Default)]
struct Count {
    files: usize,
    exchanges: usize,
    openai: usize,
    genai: usize,
    excluded: usize,
    no_model_call: usize,
}

#[test]
fn every_file_is_asserted_on_by_a_crate_or_listed_with_the_reason() {
    let Some(cassettes) = cassettes::all() else { return };
    assert!(!cassettes.is_empty());
    let mut counts: BTreeMap<&str, (Count, BTreeSet<String>)> = BTreeMap::new();
    for file in &cassettes {
        let (count, notes) = counts.entry(&file.folder).or_default();
        let found: Vec<Coverage> = file.exchanges.iter().map(coverage).collect();
        let asserted = [Coverage::OpenAi, Coverage::GenAi];
        let excluded = found.iter().find_map(|coverage| match coverage {
            Coverage::Excluded(reason) => Some(reason),
            Coverage::OpenAi | Coverage::GenAi | Coverage::NoModelCall => None,
        });
        count.files += 1;
        count.exchanges += found.iter().filter(|coverage| asserted.contains(coverage)).count();
        if found.contains(&Coverage::GenAi) {
            count.genai += 1;
        } else if found.contains(&Coverage::OpenAi) {
            count.openai += 1;
        } else if let Some(reason) = excluded {
            count.excluded += 1;
            notes.insert(format!("{}: {reason}", file.name));
        } else {
            count.no_model_call += 1;
            notes.insert(format!("{}: no call of a model", file.name));
        }
    }
    println!(
        "folder: files = openai + genai + excluded + no call of a model, exchanges asserted on"
    );
    for (folder, (count, notes)) in &counts {
        let Count { files, exchanges, openai, genai, excluded, no_model_call } = count;
        println!(
            "{folder}: {files} = {openai} + {genai} + {excluded} + {no_model_call}, {exchanges}"
        );
        notes.iter().for_each(|note| println!("    {note}"));
        assert_eq!(*files, openai + genai + excluded + no_model_call, "{folder}");
    }
}
