//! Tests the import of the providers' JSON, with examples from their documentation and with
//! requests that providers have accepted.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tower_chat::{
    import::{Format, read},
    tool::ToolStatus,
};
use tower_chat_wire::{anthropic, gemini, openai_chat, openai_responses};

use crate::support::{Expected, Files, check, sketches};

/// A conversation in the JSON of a provider, and the messages that must be read from it. A file
/// with the first `short` messages of `list` is imported first.
struct Case {
    format: Format,
    name: &'static str,
    list: Value,
    short: usize,
    expected: Vec<Value>,
    calls: Vec<(&'static str, ToolStatus)>,
}

fn cases() -> Vec<Case> {
    let (ok, error) = (ToolStatus::Ok, ToolStatus::Error);
    let both = |calls: [&'static str; 2], second| vec![(calls[0], ok), (calls[1], second)];
    vec![
        Case {
            format: Format::OpenAiChat,
            name: "messages",
            list: json!([
                {"role": "user", "content": [
                    {"type": "text", "text": "When is the tide?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                ]},
                {"role": "assistant", "content": "I look.", "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": "{ \"harbour\":\"Århus\"}"}},
                    {"id": "call_2", "type": "function", "function": {"name": "berth", "arguments": "{\"number\":99}"}},
                ]},
                {"role": "tool", "tool_call_id": "call_2", "content": "There is none."},
                {"role": "tool", "tool_call_id": "call_1", "content": ""},
                {"role": "assistant", "content": "In the evening."},
                {"role": "user", "content": "Thanks 🌊"},
            ]),
            short: 5,
            expected: vec![
                json!(["user", "When is the tide?", {"media": "image/png base64 iVBORw0KGgo="}]),
                json!(["assistant", "I look.", {"call": "call_1 tide { \"harbour\":\"Århus\"}"}, {"call": "call_2 berth {\"number\":99}"}]),
                json!(["tool", {"result": "call_2", "content": ["There is none."]}]),
                json!(["tool", {"result": "call_1", "content": [""]}]),
                json!(["assistant", "In the evening."]),
            ],
            calls: both(["call_1", "call_2"], ok),
        },
        Case {
            format: Format::OpenAiResponses,
            name: "input",
            list: json!([
                {"role": "user", "content": "Whose ship is it?"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAB"},
                {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "ship", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "The Freja"},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "The Freja's.", "annotations": []}]},
                {"role": "user", "content": "And her flag?"},
            ]),
            short: 5,
            expected: vec![
                json!(["user", "Whose ship is it?"]),
                json!([
                    "assistant",
                    {"reasoning": "", "native": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAB"}},
                    {"call": "call_1 ship {}"},
                ]),
                json!(["tool", {"result": "call_1", "content": ["The Freja"]}]),
                json!([
                    "assistant",
                    {"native": {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}},
                    "The Freja's.",
                ]),
            ],
            calls: vec![("call_1", ok)],
        },
        Case {
            format: Format::Anthropic,
            name: "messages",
            list: json!([
                {"role": "user", "content": "Which crane?"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Two.", "signature": "c2lnbmVk"},
                    {"type": "tool_use", "id": "toolu_1", "name": "crane", "input": {"number": 1}},
                    {"type": "tool_use", "id": "toolu_2", "name": "crane", "input": {"number": 2}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "It is free."},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "No power.", "is_error": true},
                ]},
                {"role": "assistant", "content": "The first."},
                {"role": "user", "content": "Good."},
            ]),
            short: 4,
            expected: vec![
                json!(["user", "Which crane?"]),
                json!([
                    "assistant",
                    {"reasoning": "Two.", "native": {"type": "thinking", "signature": "c2lnbmVk"}},
                    {"call": "toolu_1 crane {\"number\":1}"},
                    {"call": "toolu_2 crane {\"number\":2}"},
                ]),
                json!([
                    "tool",
                    {"result": "toolu_1", "content": ["It is free."]},
                    {"error": "toolu_2", "content": ["No power."]},
                ]),
                json!(["assistant", "The first."]),
            ],
            calls: both(["toolu_1", "toolu_2"], error),
        },
        Case {
            format: Format::Gemini,
            name: "contents",
            list: json!([
                {"role": "user", "parts": [{"text": "Is there fog?"}]},
                {"role": "model", "parts": [
                    {"functionCall": {"id": "f1", "name": "fog", "args": {}}, "thoughtSignature": "c2k="},
                ]},
                {"role": "user", "parts": [{"functionResponse": {"id": "f1", "name": "fog", "response": {"output": "No fog."}}}]},
                {"role": "model", "parts": [{"text": "None."}]},
                {"role": "user", "parts": [{"text": "And wind?"}]},
            ]),
            short: 4,
            expected: vec![
                json!(["user", "Is there fog?"]),
                json!(["assistant", {"call": "f1 fog {}"}]),
                json!(["tool", {"result": "f1", "content": ["No fog."]}]),
                json!(["assistant", "None."]),
            ],
            calls: vec![("f1", ok)],
        },
    ]
}

#[tokio::test]
async fn conversations_of_each_provider_are_read_stored_and_continued() {
    for case in cases() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let list = case.list.as_array().unwrap();
        // A list of messages, a request body, JSON Lines of request bodies, and JSON Lines of
        // messages.
        write(&file("harbour.json"), &[json!(list[..case.short])]);
        write(&file("body.json"), &[json!({"id": "harbour", case.name: list})]);
        write(
            &file("lines.jsonl"),
            &[
                json!({"id": "another", case.name: [list[0]]}),
                json!({"id": "harbour", case.name: list[..case.short]}),
            ],
        );
        write(&file("messages.jsonl"), &list[..case.short]);
        let mut other = list[0].to_string();
        other = other.replace("the tide", "the ferry").replace("ship", "boat");
        other = other.replace("crane", "berth").replace("fog", "ice");
        fs::write(file("other.json"), format!("[{other}]")).unwrap();
        let files = Files {
            short: &[&file("harbour.json")],
            long: &file("body.json"),
            other: &file("other.json"),
            other_from: 1,
        };
        let expected = Expected {
            id: "harbour",
            messages: case.expected.clone(),
            losses: vec![],
            calls: case.calls.clone(),
        };
        check(case.format, &files, &[expected]).await;

        let lines = read(case.format, &file("lines.jsonl")).unwrap();
        let ids: Vec<_> = lines.iter().map(|read| read.id.as_str()).collect();
        assert_eq!(ids, ["another", "harbour"]);
        assert_eq!(sketches(&lines[1].messages), case.expected);
        let messages = read(case.format, &file("messages.jsonl")).unwrap();
        assert_eq!((messages.len(), messages[0].id.as_str()), (1, "messages"));
        assert_eq!(sketches(&messages[0].messages), case.expected);
    }
}

fn write(path: &Path, lines: &[Value]) {
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(path, lines.join("\n")).unwrap();
}

#[test]
fn the_instructions_in_a_request_body_are_read_as_its_first_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("body.json");
    for (format, name, list, instructions) in [
        (Format::OpenAiResponses, "instructions", "input", json!("Be brief.")),
        (Format::Anthropic, "system", "messages", json!([{"type": "text", "text": "Be brief."}])),
        (
            Format::Gemini,
            "systemInstruction",
            "contents",
            json!({"parts": [{"text": "Be brief."}]}),
        ),
    ] {
        let first = match format {
            Format::Gemini => json!({"role": "user", "parts": [{"text": "Hello."}]}),
            _ => json!({"role": "user", "content": "Hello."}),
        };
        write(&path, &[json!({name: instructions, list: [first]})]);
        let read = read(format, &path).unwrap().remove(0);
        let texts: Vec<String> = read.messages.iter().map(tower_chat::Message::text).collect();
        assert_eq!((read.id.as_str(), texts), ("body", vec!["Be brief.".into(), "Hello.".into()]));
    }
}

/// The import must return the same messages as the parser for the provider's JSON.
#[test]
fn requests_that_providers_accepted_are_imported_without_losses() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tower-chat-testkit/data/oracle");
    for format in [Format::OpenAiChat, Format::OpenAiResponses, Format::Anthropic, Format::Gemini] {
        let accepted = fs::read_to_string(data.join(format!("accepted_{format}.jsonl"))).unwrap();
        let bodies: Vec<Value> = accepted
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["request"].take())
            .collect();
        let path = folder.path().join(format!("{format}.jsonl"));
        write(&path, &bodies);
        let read = read(format, &path).unwrap();
        assert!(bodies.len() >= 3);
        assert_eq!(read.len(), bodies.len());
        for (read, body) in read.iter().zip(&bodies) {
            let body = body.to_string();
            let parsed = match format {
                Format::OpenAiResponses => openai_responses::parse_body(&body).unwrap().messages,
                Format::Anthropic => anthropic::parse_body(&body).unwrap(),
                Format::Gemini => gemini::parse_body(&body).unwrap(),
                _ => {
                    let body: Value = serde_json::from_str(&body).unwrap();
                    openai_chat::parse_messages(&body["messages"].to_string()).unwrap()
                }
            };
            let last = read.messages.len() - parsed.len();
            assert!(last <= 1);
            assert_eq!(read.messages[last..], parsed);
            assert_eq!(read.losses, []);
        }
    }
}
