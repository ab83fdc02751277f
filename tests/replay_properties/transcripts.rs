//! The recorded conversations that are tried.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;
use tower_chat::core::Message;
use tower_chat_wire::openai_chat;

/// The folders of `TOWER_CHAT_DATA` with whole conversations.
const FOLDERS: [&str; 5] = ["tau_bench", "tau2", "openhands", "swe_agent", "toolbench_legacy"];

/// The messages of every transcript: of the recorded data, and our own.
pub(crate) fn all() -> Vec<Vec<Message>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tower-chat-cli/tests");
    let mut folders = vec![own.join("transcripts")];
    match env::var_os("TOWER_CHAT_DATA") {
        Some(data) => folders.extend(FOLDERS.map(|folder| PathBuf::from(&data).join(folder))),
        None => say("TOWER_CHAT_DATA is not set: the recorded data is skipped, our own is not"),
    }
    let files = folders.iter().flat_map(|folder| files(folder));
    files.flat_map(|file| transcripts(&file)).collect()
}

/// Says something that is seen of a test that passes, too.
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
        let messages = line.get("messages").expect("a conversation").to_string();
        openai_chat::parse_messages(&messages).expect("messages")
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(transcript).collect()
}
