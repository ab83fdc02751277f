//! Tests the import of Microsoft Agent Framework's files.

use serde_json::json;
use tower_chat::{
    Part,
    import::{Format, read},
    tool::ToolStatus,
};

use crate::{
    install::made_by,
    support::{Expected, Files, check},
};

#[tokio::test]
async fn files_of_agent_framework_are_read_stored_and_continued() {
    let Some(made) = made_by("agent_framework_files.py") else { return };
    let file = |name: &str| made.path().join(name);
    let bob_file = file("short/~session-orswc3jpmjxwe.jsonl");
    let files = Files {
        short: &[&file("short/alice.jsonl"), &bob_file],
        long: &file("long/alice.jsonl"),
        other: &file("other/alice.jsonl"),
        other_from: 1,
    };
    check(Format::AgentFramework, &files, &[alice(), bob()]).await;
    let alice = read(Format::AgentFramework, &file("short/alice.jsonl")).unwrap().remove(0);
    let authors: Vec<_> = alice.messages.iter().filter_map(|it| it.author.as_deref()).collect();
    assert_eq!(authors, ["pilot"]);
}

#[test]
fn the_text_of_a_result_replaces_items_of_an_unknown_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tides.jsonl");
    let [one, two, unknown] = [
        json!({"type": "text", "text": "High at 18:40."}),
        json!({"type": "text", "text": "Low at 0:30."}),
        json!({"type": "chart"}),
    ];
    let image =
        json!({"type": "uri", "uri": "https://tides.example/7.png", "media_type": "image/png"});
    let known = "High at 18:40.Low at 0:30.";
    for (items, result, expected) in [
        (vec![&one, &two], Some("All."), known),
        (vec![&one, &unknown, &two], Some("All."), "All."),
        (vec![&one, &unknown, &image], Some("All."), "All.[image/png]"),
        (vec![&one, &unknown, &two], None, known),
        (vec![&unknown], Some("All."), "All."),
        (vec![], Some("All."), "All."),
    ] {
        let call =
            json!({"type": "function_call", "call_id": "c", "name": "tide", "arguments": "{}"});
        let mut content = json!({"type": "function_result", "call_id": "c", "items": items});
        if let Some(result) = result {
            content["result"] = result.into();
        }
        let line =
            |role: &str, content| json!({"type": "message", "role": role, "contents": [content]});
        let lines = format!("{}\n{}\n", line("assistant", call), line("tool", content.clone()));
        std::fs::write(&path, lines).unwrap();
        let read = read(Format::AgentFramework, &path).unwrap().remove(0);
        let result = read.messages[1].results().next().unwrap();
        let parts = result.content.iter().map(|part| match part {
            Part::Text(text) => text.text.to_string(),
            Part::Media(media) => format!("[{}]", media.media_type),
            part => format!("{part:?}"),
        });
        assert_eq!(parts.collect::<String>(), expected, "{content}");
    }
}

fn alice() -> Expected {
    Expected {
        id: "alice",
        messages: vec![
            json!(["system", "Be brief."]),
            json!([
                "user",
                "When is the tide?",
                {"media": "image/png base64 iVBORw=="},
                {"media": "image/png url https://charts.example/7.png"},
            ]),
            json!([
                "assistant",
                {"reasoning": "Two harbours.\n\nOr three.", "native": {
                    "type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAB",
                    "summary": [
                        {"type": "summary_text", "text": "Two harbours."},
                        {"type": "summary_text", "text": "Or three."},
                    ],
                }},
                "I look.",
                {"call": "call_1 tide {\"harbour\":\"Århus\",\"big\":1234567890123456789}"},
                {"call": "call_2 berth {\"number\":99}"},
            ]),
            json!(["tool", {"error": "call_2", "content": ["Error: there is no berth 99"]}]),
            json!(["tool", {"result": "call_1", "content": ["{\"high\": \"18:40 \\ud83c\\udf0a\"}"]}]),
            json!(["assistant", "In the evening."]),
            json!(["user", ""]),
            json!(["assistant", "You wrote nothing.", {"reasoning": "Whose is it?", "native": null}]),
        ],
        losses: vec![
            "line 8: a content of type \"search_tool_call\" is not stored: messages have no part \
             for it",
            "line 8: the provider's signature of its reasoning is not stored: the history does not name the provider \
             of the signature",
        ],
        calls: vec![("call_1", ToolStatus::Ok), ("call_2", ToolStatus::Error)],
    }
}

fn bob() -> Expected {
    Expected {
        id: "team/bob",
        messages: vec![
            json!(["user", "Berth 7, then?"]),
            json!(["assistant", {"call": "call_3 berth {\"number\":7}"}]),
        ],
        losses: vec![
            "stored message 2: the call of tool \"berth\" (id \"call_3\") has no result; it is \
             stored, and sent to models as interrupted: it is unknown whether the tool has run",
        ],
        calls: vec![("call_3", ToolStatus::Pending)],
    }
}
