//! Tests the import of sessions of the OpenAI Agents SDK for Python.

use serde_json::json;
use tower_chat::{import::Format, tool::ToolStatus};

use crate::{
    install::made_by,
    support::{Expected, Files, check},
};

#[tokio::test]
async fn sessions_of_the_openai_agents_sdk_are_read_stored_and_continued() {
    let Some(made) = made_by("openai_agents_sessions.py") else { return };
    let file = |name: &str| made.path().join(name);
    let files = Files {
        short: &[&file("short.db")],
        long: &file("long.db"),
        other: &file("other.db"),
        other_from: 1,
    };
    check(Format::OpenAiAgents, &files, &[alice(), bob()]).await;
}

fn alice() -> Expected {
    Expected {
        id: "alice's",
        messages: vec![
            json!(["user", "When is the tide?"]),
            json!([
                "assistant",
                {"reasoning": "Two harbours.", "native": {
                    "type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAB",
                    "summary": [{"type": "summary_text", "text": "Two harbours."}],
                }},
                {"call": "call_1 tide {\"harbour\": \"Århus\"}"},
                {"call": "call_2 tide {\"harbour\":\"Oslo\"}"},
            ]),
            json!([
                "tool",
                {"result": "call_1", "content": ["High water in Århus 🌊"]},
                {"result": "call_2", "content": ["High water in Oslo 🌊"]},
            ]),
            json!([
                "assistant",
                {"native": {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}},
                "In the evening, in both.",
            ]),
            json!(["user", "And this ship?", {"media": "image/png base64 iVBORw0KGgo="}]),
            json!([
                "assistant",
                {"call": "call_4 ship {}"},
                {"call": "call_5 flag {\"big\": 12345678901234567890123}"},
            ]),
            json!([
                "tool",
                {"result": "call_5", "content": ["Danish"]},
                {"result": "call_4", "content": ["The Freja"]},
            ]),
            json!(["assistant", "It is the Freja."]),
            json!(["user", ""]),
            json!(["assistant", "You wrote nothing."]),
        ],
        losses: vec![],
        calls: vec![
            ("call_1", ToolStatus::Ok),
            ("call_2", ToolStatus::Ok),
            ("call_4", ToolStatus::Ok),
            ("call_5", ToolStatus::Ok),
        ],
    }
}

fn bob() -> Expected {
    Expected {
        id: "bob",
        messages: vec![
            json!(["user", "A berth for me?"]),
            json!(["assistant", {"call": "call_3 berth {\"number\": 99}"}]),
            json!(["tool", {"result": "call_3", "content": ["It failed: there is no berth 99"]}]),
            json!([
                "assistant",
                {"native": {"type": "message", "id": "msg_2", "role": "assistant", "status": "completed"}},
                "Not that one.",
            ]),
            json!(["user", "Berth 7, then?"]),
            json!(["assistant", {"call": "call_6 berth {\"number\": 7}"}]),
        ],
        losses: vec![
            "stored message 6: the call of tool \"berth\" (id \"call_6\") has no result; it is \
             stored, and sent to models as interrupted: it is unknown whether the tool has run",
        ],
        calls: vec![("call_3", ToolStatus::Ok), ("call_6", ToolStatus::Pending)],
    }
}
