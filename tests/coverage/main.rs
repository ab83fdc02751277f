//! Every recorded file of the providers is asserted on by the recorded tests of one leaf crate or
//! the other, or is listed with the reason.
//!
//! Which exchanges a crate plays is asked of the modules with which its own tests choose them:
//! `tower-chat-openai` plays all of Chat Completions and Responses, in every folder, and
//! `tower-chat-genai` all of the wires that [`wire::Asked`] knows, in its [`wire::FOLDERS`]. Those
//! tests stop at the first exchange that is not read and asked as it was.
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
#[path = "../../crates/tower-chat-openai/tests/leaves/cassettes.rs"]
mod openai_cassettes;
#[path = "../../crates/tower-chat-genai/tests/genai/plain.rs"]
mod plain;
#[path = "../../crates/tower-chat-genai/tests/genai/said.rs"]
mod said;
#[path = "../../crates/tower-chat-genai/tests/genai/wire.rs"]
mod wire;

use std::collections::{BTreeMap, BTreeSet};

/// The folders that must be covered.
const COVERED: [&str; 13] = [
    "openai_chat",
    "openai_responses",
    "azure",
    "anthropic",
    "gemini",
    "mistral",
    "groq",
    "deepseek",
    "xai",
    "openrouter",
    "ollama",
    "bedrock",
    "cohere",
];

/// Parts of addresses that are no calls of a model: tokens counted, histories compacted, files given
/// to a service, keys fetched, telemetry, and pictures and documents that a client fetched.
const NO_CALLS: [&str; 8] = [
    "/responses/input_tokens",
    "/responses/compact",
    "api.anthropic.com/v1/files",
    "oauth2.googleapis.com/token",
    "/traces/ingest",
    "/telemetry/runs",
    "/1.png",
    "/sample.pdf",
];

/// Who asserts on an exchange, and why nobody does.
#[derive(Debug, PartialEq)]
enum Place {
    OpenAi,
    GenAi,
    NoCall,
    Excluded(&'static str),
}

/// Where each exchange of a file is asserted on; an address that nobody knows is an error.
fn places(openai: &openai_cassettes::Cassette, genai: &cassettes::Cassette) -> Vec<Place> {
    assert_eq!(openai.exchanges.len(), genai.exchanges.len(), "{}", genai.name);
    let both = openai.exchanges.iter().zip(&genai.exchanges);
    let place = |(of_openai, of_genai): (&openai_cassettes::Exchange, &cassettes::Exchange)| {
        let path = of_genai.path();
        assert_eq!(path, of_openai.path());
        let is_genais = wire::FOLDERS.contains(&&*genai.folder);
        let excluded = wire::EXCLUDED.iter().find(|(end, _)| path.ends_with(end));
        if of_openai.is_chat() || of_openai.is_responses() {
            Place::OpenAi
        } else if is_genais && wire::Asked::of(&genai.folder, of_genai).is_some() {
            Place::GenAi
        } else if let Some((_, reason)) = excluded {
            Place::Excluded(reason)
        } else {
            assert!(
                NO_CALLS.iter().any(|known| path.contains(known)),
                "{}/{}: nobody asserts on {path}",
                genai.folder,
                genai.name
            );
            Place::NoCall
        }
    };
    both.map(place).collect()
}

#[derive(Debug, Default)]
struct Count {
    files: usize,
    exchanges: usize,
    openai: usize,
    genai: usize,
    excluded: usize,
}

#[test]
fn every_file_is_asserted_on_by_a_crate_or_listed_with_the_reason() {
    let Some(genai) = cassettes::of(&COVERED) else { return };
    let openai = openai_cassettes::all().unwrap();
    let openai: BTreeMap<_, _> =
        openai.iter().map(|file| ((&*file.folder, &*file.name), file)).collect();
    let mut counts: BTreeMap<&str, (Count, BTreeSet<String>)> = BTreeMap::new();
    for file in &genai {
        let (count, notes) = counts.entry(&file.folder).or_default();
        let places = places(openai[&(&*file.folder, &*file.name)], file);
        count.files += 1;
        count.exchanges +=
            places.iter().filter(|it| [Place::OpenAi, Place::GenAi].contains(it)).count();
        let excluded = places.iter().find_map(|place| match place {
            Place::Excluded(reason) => Some(reason),
            Place::OpenAi | Place::GenAi | Place::NoCall => None,
        });
        if places.contains(&Place::GenAi) {
            count.genai += 1;
        } else if places.contains(&Place::OpenAi) {
            count.openai += 1;
        } else {
            let reason = excluded.unwrap_or_else(|| panic!("{}/{}", file.folder, file.name));
            count.excluded += 1;
            notes.insert(format!("{}: {reason}", file.name));
        }
    }
    println!("folder            files  asserted (tower-chat-openai + -genai)  excluded  exchanges");
    for folder in COVERED {
        let (Count { files, exchanges, openai, genai, excluded }, notes) = &counts[folder];
        println!(
            "{folder:16}  {files:5}  {:8} ({openai:17} + {genai:6})  {excluded:8}  {exchanges:9}",
            openai + genai
        );
        notes.iter().for_each(|note| println!("    {note}"));
        assert_eq!(*files, openai + genai + excluded, "{folder}");
        assert!(excluded * 10 <= *files, "{folder}: more than one in ten is excluded");
    }
}
