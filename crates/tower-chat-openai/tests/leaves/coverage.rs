//! Every recorded file is asserted on, or listed here and in the crate's documentation.

use crate::cassettes::{self, Cassette};

/// The folders whose files this crate must be able to play.
const COVERED: [&str; 9] = [
    "azure",
    "deepseek",
    "groq",
    "mistral",
    "ollama",
    "openai_chat",
    "openai_responses",
    "openrouter",
    "xai",
];

/// Files that record what a leaf cannot do, and why it cannot.
const EXCLUDED: [(&str, &str); 0] = [];

/// Paths of the wires that another crate speaks.
const ELSEWHERE: [(&str, &str); 1] = [("/api/chat", "native Ollama, tower-chat-genai")];

/// The ends of paths that are no calls of a model: tokens counted, histories compacted, telemetry,
/// pictures and documents fetched.
const NO_CALLS: [&str; 6] = [
    "/responses/input_tokens",
    "/responses/compact",
    "/traces/ingest",
    "/telemetry/runs",
    "/1.png",
    "/sample.pdf",
];

#[test]
fn every_file_is_asserted_on_or_listed_with_the_reason() {
    let Some(cassettes) = cassettes::all() else { return };
    println!("folder            files  chat  responses  elsewhere  excluded");
    let mut unaccounted = Vec::new();
    for folder in COVERED {
        let files: Vec<&Cassette> = cassettes.iter().filter(|file| file.folder == folder).collect();
        let (mut chat, mut responses, mut elsewhere) = (0, 0, Vec::new());
        let mut excluded = Vec::new();
        for file in &files {
            let name = format!("{folder}/{}", file.name);
            // The recorded tests of both wires play every exchange of a file that has one of theirs.
            let of_chat = file.chat().next().is_some();
            let of_responses = file.responses().next().is_some();
            chat += usize::from(of_chat);
            responses += usize::from(of_responses && !of_chat);
            let reason = EXCLUDED.iter().find(|(excluded, _)| *excluded == name);
            let is_asserted_on = of_chat || of_responses;
            assert!(!(is_asserted_on && reason.is_some()), "{name} is not excluded any more");
            if is_asserted_on {
                continue;
            }
            match (reason, wire_elsewhere(file)) {
                (Some((_, reason)), _) => excluded.push(format!("{name}: {reason}")),
                (None, Some(wire)) => elsewhere.push(format!("{name}: {wire}")),
                (None, None) => unaccounted.push(name),
            }
        }
        println!(
            "{folder:16}  {:5}  {chat:4}  {responses:9}  {:9}  {:8}",
            files.len(),
            elsewhere.len(),
            excluded.len(),
        );
        elsewhere.iter().chain(&excluded).for_each(|line| println!("    {line}"));
        assert!(!files.is_empty(), "{folder} has no files");
        assert!(excluded.len() * 10 <= files.len(), "{folder}: more than one in ten is excluded");
    }
    assert!(unaccounted.is_empty(), "neither asserted on nor listed: {unaccounted:#?}");
}

/// What of the recorded files' other exchanges is no call of a model, and so nothing for a leaf.
#[test]
fn every_other_exchange_of_these_files_is_of_a_known_kind() {
    let Some(cassettes) = cassettes::all() else { return };
    for file in cassettes.iter().filter(|file| COVERED.contains(&file.folder.as_str())) {
        for exchange in &file.exchanges {
            let path = exchange.path();
            assert!(
                exchange.is_chat()
                    || exchange.is_responses()
                    || wire_elsewhere(file).is_some()
                    || NO_CALLS.iter().any(|known| path.ends_with(known)),
                "{}/{}: {path}",
                file.folder,
                file.name
            );
        }
    }
}

/// The wire of another crate that the file records.
fn wire_elsewhere(file: &Cassette) -> Option<&'static str> {
    let first = file.exchanges.first()?.path();
    ELSEWHERE.iter().find(|(path, _)| first.ends_with(path)).map(|(_, wire)| *wire)
}
