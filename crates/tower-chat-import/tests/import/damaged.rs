//! Tests the errors for files that are damaged, truncated, or in another format.

use std::{error::Error, fs, path::PathBuf};

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;
use tower_chat::import::{Format, ReadError, read};

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join("history");
        fs::write(&path, content).unwrap();
        path
    }

    fn database(&self, statements: &str) -> PathBuf {
        let path = self.0.path().join("history.db");
        let _ = fs::remove_file(&path);
        Connection::open(&path).unwrap().execute_batch(statements).unwrap();
        path
    }
}

/// Formats an error with all its sources.
fn whole(error: &ReadError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[test]
fn an_error_in_a_file_is_reported_with_its_position_and_its_field() {
    let folder = Folder::new();
    let call = r#"{"part_kind": "tool-call", "tool_name": 7}"#;
    let two = "{\"role\": \"user\", \"contents\": []}\n{\"role\": \"user\", \"contents\": 3}\n";
    for (format, content, expected) in [
        (Format::OpenAiChat, "", "cannot read the file of"),
        (Format::OpenAiChat, "[{\"role\": \"user\", \"con", "cannot read the JSON of"),
        (
            Format::OpenAiChat,
            "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"us",
            "cannot read line 2 of",
        ),
        (
            Format::OpenAiChat,
            r#"[{"role":"user","content":"a"},{"role":"wizard","content":"b"}]"#,
            "cannot read message 2 of",
        ),
        (
            Format::Anthropic,
            "{\"messages\":[]}\n{\"messages\":[{\"role\":\"user\"}]}",
            "cannot read line 2, message 1 of",
        ),
        (
            Format::Gemini,
            r#"{"contents": [{"role": "user", "parts": 3}]}"#,
            "cannot read message 1 of",
        ),
        (Format::AgentFramework, two, "cannot read line 2 of"),
        (Format::AgentFramework, two, "contents must be a list, but is a number"),
        (
            Format::AgentFramework,
            r#"{"role": "user", "contents": [{"type": "text"}, {}]}"#,
            "contents[1].type must be a text, but is missing",
        ),
        (
            Format::PydanticAi,
            &format!(r#"[{{"kind": "response", "parts": [{call}]}}]"#),
            "parts[0].tool_name must be a text, but is a number",
        ),
        (
            Format::PydanticAi,
            r#"[{"kind": "answer", "parts": []}]"#,
            "kind must be request or response",
        ),
        (
            Format::PydanticAi,
            r#"[{"kind": "request", "parts": [], "timestamp": "soon"}]"#,
            "timestamp must be a time",
        ),
        (
            Format::VercelUi,
            r#"[{"role": "user", "parts": [{"type": "text"}]}]"#,
            "parts[0].text must be a text, but is missing",
        ),
        (
            Format::VercelUi,
            r#"[{"role": "assistant", "parts": [{"type": "tool-a", "toolCallId": "1", "state": "new"}]}]"#,
            "parts[0].state must be the state of a tool call",
        ),
    ] {
        let error = read(format, &folder.file(content)).unwrap_err();
        assert!(matches!(error, ReadError::Content { .. }), "{error:?}");
        let text = whole(&error);
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("nothing of the file was imported"), "{text}");
    }
}

#[test]
fn a_file_of_another_format_is_refused_with_the_name_of_that_format() {
    let folder = Folder::new();
    let examples = [
        (Format::OpenAiChat, json!({"role": "tool", "tool_call_id": "1", "content": "a"})),
        (Format::OpenAiResponses, json!({"type": "reasoning", "summary": []})),
        (
            Format::Anthropic,
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}),
        ),
        (Format::Gemini, json!({"role": "user", "parts": [{"text": "a"}]})),
        (
            Format::AgentFramework,
            json!({"role": "user", "contents": [{"type": "text", "text": "a"}]}),
        ),
        (Format::PydanticAi, json!({"kind": "request", "parts": []})),
        (Format::VercelUi, json!({"role": "user", "parts": [{"type": "text", "text": "a"}]})),
    ];
    for (found, example) in &examples {
        let path = folder.file(json!([example]).to_string());
        assert!(read(*found, &path).is_ok(), "{found}");
        for (asked, _) in examples.iter().filter(|(asked, _)| asked != found) {
            let error = read(*asked, &path).unwrap_err();
            assert!(matches!(error, ReadError::OtherFormat { .. }), "{asked}: {error:?}");
            assert!(
                error.to_string().contains(&format!("message 1 has the format of {found}")),
                "{error}"
            );
        }
        for database in [Format::OpenAiAgents, Format::LangGraph] {
            let error = read(database, &path).unwrap_err();
            assert!(matches!(error, ReadError::Database { .. }), "{error:?}");
        }
    }
    let database = folder.database("CREATE TABLE other (id INTEGER)");
    for format in Format::ALL {
        let error = read(format, &database).unwrap_err();
        assert!(
            matches!(error, ReadError::OtherFormat { .. } | ReadError::Content { .. }),
            "{error:?}"
        );
        let missing = read(format, &folder.0.path().join("missing")).unwrap_err();
        assert!(matches!(missing, ReadError::File { .. }), "{missing:?}");
    }
}

#[test]
fn a_damaged_row_of_a_database_is_reported_with_its_position() {
    let folder = Folder::new();
    let agents = "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT);
        INSERT INTO agent_messages VALUES (1, 's', '{\"role\": \"user\", \"content\": \"Hello.\"}', '2026-11-23 10:00:00');";
    for (row, expected) in [
        ("(7, 's', '{\"type\": \"function_call', NULL)", "cannot read row 7 of agent_messages"),
        ("(8, 's', '{\"type\": \"function_call\"}', NULL)", "cannot read row 8 of agent_messages"),
        (
            "(9, 's', '{\"role\": \"user\", \"content\": \"a\"}', 'soon')",
            "cannot read row 9 of agent_messages",
        ),
    ] {
        let path = folder.database(&format!("{agents} INSERT INTO agent_messages VALUES {row}"));
        let text = whole(&read(Format::OpenAiAgents, &path).unwrap_err());
        assert!(text.contains(expected), "{text}");
    }
    let checkpoints = "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB);
        CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB);";
    // The values are 1,000 nested lists, a list that declares 2^32 - 1 items, bytes after the
    // value, and an extension without the name of a class.
    let deep = "91".repeat(1000);
    for (kind, hex, expected) in [
        ("msgpack", deep.as_str(), "thread \"t\", checkpoint 1"),
        ("msgpack", "ddffffffff", "thread \"t\", checkpoint 1"),
        ("msgpack", "8080", "there are bytes after the value"),
        ("msgpack", "81ae6368616e6e656c5f76616c756573c70105c0", "without the name of a class"),
        ("msgpack+aes", "00", "it is encrypted (msgpack+aes)"),
        ("pickle", "00", "it is serialized as \"pickle\""),
        ("json", "7b7d7b", "thread \"t\", checkpoint 1"),
    ] {
        let row =
            format!("INSERT INTO checkpoints VALUES ('t', '', '1', NULL, '{kind}', x'{hex}')");
        let path = folder.database(&format!("{checkpoints} {row}"));
        let error = read(Format::LangGraph, &path).unwrap_err();
        assert!(matches!(error, ReadError::Content { .. }), "{error:?}");
        let text = whole(&error);
        assert!(text.contains(expected), "{text}");
    }
    let path = folder.database(&format!(
        "{checkpoints} INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'msgpack', x'80')"
    ));
    let read = read(Format::LangGraph, &path).unwrap().remove(0);
    assert_eq!(
        read.losses[0].to_string(),
        "thread \"t\", checkpoint 1: its state is not stored: it has no channel \"messages\", which contains the conversation"
    );
}

/// The arguments of a call are stored as text, and may have any depth.
#[test]
fn deeply_nested_values_are_refused_unless_they_are_stored_as_text() {
    let folder = Folder::new();
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    for format in
        Format::ALL.into_iter().filter(|it| !matches!(it, Format::OpenAiAgents | Format::LangGraph))
    {
        for content in [
            deep.clone(),
            format!("[{deep}]"),
            format!(r#"[{{"role": {deep}}}]"#),
            format!(
                r#"[{{"role": "user", "kind": "request", "content": {deep}, "contents": {deep}, "parts": {deep}}}]"#
            ),
        ] {
            assert!(read(format, &folder.file(content)).is_err(), "{format}");
        }
    }
    let call = format!(
        r#"{{"part_kind": "tool-call", "tool_name": "look", "tool_call_id": "1", "args": {deep}}}"#
    );
    let path = folder.file(format!(r#"[{{"kind": "response", "parts": [{call}]}}]"#));
    let read = read(Format::PydanticAi, &path).unwrap().remove(0);
    assert_eq!(read.messages[0].calls().next().unwrap().arguments, deep);
}
