//! The conversations of the test cases.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;
use tower_chat::Message;
use tower_chat_testkit::recordings::Recordings;
use tower_chat_wire::openai_chat;

/// Returns all conversations: those in the tests of `play`, and the recorded data.
pub(crate) fn all() -> Vec<Vec<Message>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("campaigns/tests/transcripts");
    let own = files(&own).into_iter().flat_map(|file| transcripts(&file));
    let recorded = Recordings::all().conversations().expect("conversations");
    own.chain(recorded.into_iter().map(|recorded| parse(recorded.messages.into()))).collect()
}

fn parse(messages: Value) -> Vec<Message> {
    openai_chat::parse_messages(&messages.to_string()).expect("messages")
}

/// Prints a line that is visible even if the test passes.
pub(crate) fn say(text: &str) {
    writeln!(io::stderr(), "replay_properties: {text}").expect("standard error is open");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|name| name == "jsonl"));
    assert!(!files.is_empty(), "no transcripts in {folder:?}");
    files.sort();
    files
}

fn transcripts(file: &Path) -> Vec<Vec<Message>> {
    let text = fs::read_to_string(file).expect("a text file");
    let transcript = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        parse(line.get("messages").expect("a conversation").clone())
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(transcript).collect()
}
