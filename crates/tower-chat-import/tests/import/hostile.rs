//! Tests that hostile files do no harm, and that files of unknown systems are refused.

use std::{error::Error, fs, path::PathBuf};

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;
use tower_chat::import::{Format, ReadError, read};

/// The beginning of a query that never ends.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n)";

const CHECKPOINTS: &str = "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT,
    checkpoint_id TEXT, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB);";

const WRITES: &str = "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,
    task_id TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB);";

fn database(statements: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    Connection::open(&path).unwrap().execute_batch(statements).unwrap();
    (folder, path)
}

#[test]
fn a_database_whose_schema_computes_the_rows_is_refused_before_it_is_read() {
    let agents = Format::OpenAiAgents;
    let columns = "id, session_id, message_data, created_at";
    for (format, statements) in [
        (
            agents,
            format!(
                "CREATE VIEW agent_messages ({columns}) AS {ENDLESS} SELECT i, i, '{{}}', i FROM n;"
            ),
        ),
        (
            agents,
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, created_at TEXT,
             message_data TEXT AS (hex(zeroblob(100000000))));
             INSERT INTO agent_messages (session_id) VALUES ('a');"
                .to_owned(),
        ),
        (
            agents,
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, created_at TEXT,
             message_data TEXT AS (printf('%.*c', 900000000, 'x')) STORED);"
                .to_owned(),
        ),
        (
            agents,
            format!(
                "CREATE TABLE AGENT_MESSAGES (id); DROP TABLE agent_messages; CREATE VIEW Agent_Messages ({columns}) AS {ENDLESS} SELECT i, i, i, i FROM n;"
            ),
        ),
        (
            Format::LangGraph,
            format!(
                "{WRITES} CREATE VIEW checkpoints (thread_id, checkpoint_ns, checkpoint_id) AS {ENDLESS} SELECT i, '', i FROM n;"
            ),
        ),
        (
            Format::LangGraph,
            format!(
                "{CHECKPOINTS} INSERT INTO checkpoints VALUES ('a', '', '1', NULL, 'json', '{{}}', ''); CREATE VIEW writes (thread_id) AS {ENDLESS} SELECT i FROM n;"
            ),
        ),
        (Format::LangGraph, CHECKPOINTS.to_owned()),
    ] {
        let (_folder, path) = database(&statements);
        let before = fs::read(&path).unwrap();
        let error = read(format, &path).unwrap_err();
        assert!(matches!(error, ReadError::OtherFormat { .. }), "{statements}: {error:?}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn views_and_triggers_of_a_database_are_not_executed() {
    let item = json!({"role": "user", "content": "Is it cold?"});
    let (_folder, path) = database(&format!(
        "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT,
         created_at TEXT);
         INSERT INTO agent_messages VALUES (1, 'a', '{item}', '2026-01-01 00:00:00');
         CREATE VIEW other AS {ENDLESS} SELECT i FROM n;
         CREATE TRIGGER theirs AFTER INSERT ON agent_messages BEGIN DELETE FROM agent_messages; END;"
    ));
    let read = read(Format::OpenAiAgents, &path).unwrap();
    assert_eq!(read[0].messages[0].text(), "Is it cold?");
}

/// Each interior page refers 60 times to the page below, over 8 levels. A small file therefore
/// represents more rows than can be read.
#[test]
fn a_database_with_repeated_pages_is_read_in_bounded_time_and_memory() {
    let text = "x".repeat(40);
    let rows: Vec<String> = (1..=400).map(|id| format!("({id}, 'a', '{text}', NULL)")).collect();
    let (_folder, path) = database(&format!(
        "PRAGMA page_size = 512;
         CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT,
         created_at TEXT);
         INSERT INTO agent_messages VALUES {};",
        rows.join(", ")
    ));
    let page = |number: usize| (number - 1) * 512;
    let mut bytes = fs::read(&path).unwrap();
    let is_kind = |bytes: &[u8], number: usize, kind: u8| bytes[page(number)] == kind;
    let pages = bytes.len() / 512;
    let lowest = (2..=pages).find(|number| is_kind(&bytes, *number, 0x0d)).unwrap();
    let root = (2..=pages).find(|number| is_kind(&bytes, *number, 0x05)).unwrap();
    // Appends interior pages that refer 60 times to the page below. The last one becomes the root.
    let mut below = lowest;
    for level in 0..8 {
        let number = if level == 7 { root } else { pages + 1 + level };
        let mut interior = vec![0_u8; 512];
        const CELLS: usize = 60;
        interior[0] = 0x05;
        interior[3..5].copy_from_slice(&(CELLS as u16).to_be_bytes());
        let first = 512 - CELLS * 5;
        interior[5..7].copy_from_slice(&(first as u16).to_be_bytes());
        interior[8..12].copy_from_slice(&(below as u32).to_be_bytes());
        for cell in 0..CELLS {
            let at = first + cell * 5;
            interior[at..at + 4].copy_from_slice(&(below as u32).to_be_bytes());
            interior[at + 4] = cell as u8;
            interior[12 + cell * 2..14 + cell * 2].copy_from_slice(&(at as u16).to_be_bytes());
        }
        if number > pages {
            bytes.extend(&interior);
        } else {
            bytes[page(number)..page(number) + 512].copy_from_slice(&interior);
        }
        below = number;
    }
    let count = (bytes.len() / 512) as u32;
    bytes[28..32].copy_from_slice(&count.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let error = read(Format::OpenAiAgents, &path).unwrap_err();
    let mut text = error.to_string();
    if let Some(source) = error.source() {
        text = format!("{text}: {source}");
    }
    let bounded = ["more steps than", "returns more data than", "malformed"];
    assert!(bounded.iter().any(|reason| text.contains(reason)), "{text}");
}

const CLAUDE_CODE: &str = r#"{"type":"summary","summary":"Coats","leafUuid":"u2"}
{"parentUuid":null,"isSidechain":false,"userType":"external","cwd":"/home/a","sessionId":"s1","version":"2.0.1","type":"user","message":{"role":"user","content":"Is it cold?"},"uuid":"u1","timestamp":"2026-01-01T00:00:00.000Z"}
{"parentUuid":"u1","type":"assistant","message":{"id":"m1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Yes."}]},"uuid":"u2","timestamp":"2026-01-01T00:00:01.000Z"}
"#;

const CODEX: &str = r#"{"timestamp":"2026-01-01T00:00:00.000Z","type":"session_meta","payload":{"id":"s1","cwd":"/home/a"}}
{"timestamp":"2026-01-01T00:00:01.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"Is it cold?"}]}}
{"timestamp":"2026-01-01T00:00:02.000Z","type":"event_msg","payload":{"type":"agent_message","message":"Yes."}}
"#;

#[test]
fn a_file_of_an_unsupported_system_is_refused_under_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    let first = |text: &str| text.lines().next().unwrap().to_owned();
    let second = |text: &str| text.lines().nth(1).unwrap().to_owned();
    for contents in [
        CLAUDE_CODE.to_owned(),
        CODEX.to_owned(),
        first(CLAUDE_CODE),
        second(CLAUDE_CODE),
        first(CODEX),
        second(CODEX),
        format!("[{},{}]", second(CLAUDE_CODE), second(CODEX)),
        r#"{"title":"Coats","mapping":{"a":{"message":{"author":{"role":"user"}}}}}"#.to_owned(),
        r#"[{"name":"Coats","chat_messages":[{"sender":"human","text":"Is it cold?"}]}]"#
            .to_owned(),
        r#"{"type":"wizardry"}"#.to_owned(),
        "[{}]".to_owned(),
        "{}".to_owned(),
        "[7]".to_owned(),
    ] {
        fs::write(&path, &contents).unwrap();
        for format in Format::ALL {
            match read(format, &path) {
                Err(error) => assert!(
                    !error.to_string().contains("has the format of openai"),
                    "{format}: {contents}: {error}"
                ),
                Ok(read) => panic!("{format} has read {read:?} of {contents}"),
            }
        }
    }
}

/// With a quadratic algorithm, the test would take minutes.
#[test]
fn many_messages_with_ids_are_imported_in_linear_time() {
    const MANY: usize = 20_000;
    let messages: Vec<_> = (0..MANY)
        .map(|id| json!({"type": "human", "id": id.to_string(), "content": "u"}))
        .collect();
    let removed: Vec<_> = (0..MANY)
        .map(|id| json!({"type": "remove", "id": id.to_string(), "content": ""}))
        .collect();
    let calls: Vec<_> =
        (0..MANY).map(|id| json!({"id": id.to_string(), "name": "f", "args": {}})).collect();
    let blocks: Vec<_> =
        (0..MANY).map(|id| json!({"type": "tool_use", "id": id.to_string()})).collect();
    let answer = json!({"type": "ai", "id": "a", "content": blocks, "tool_calls": calls});
    let values: Vec<_> = [&messages[..], &messages, &removed, &[answer]].concat();
    let state = json!({"channel_values": {"messages": values}});
    let (_folder, path) = database(&format!("{CHECKPOINTS} {WRITES}"));
    Connection::open(&path)
        .unwrap()
        .execute(
            "INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'json', ?1, '')",
            [state.to_string().into_bytes()],
        )
        .unwrap();
    let read = read(Format::LangGraph, &path).unwrap().remove(0);
    assert_eq!(read.messages.len(), 1);
    assert_eq!(read.messages[0].calls().count(), MANY);
}
