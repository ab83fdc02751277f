//! Tests the import of messages of Vercel's AI SDK.

use std::fs;

use serde_json::{Value, json};
use tower_chat::{
    import::{Format, read},
    tool::ToolStatus,
};

use crate::{
    install::made_by,
    support::{Expected, Files, check, sketches},
};

#[tokio::test]
async fn messages_of_vercels_ai_sdk_are_read_stored_and_continued() {
    let Some(made) = made_by("vercel_ui_messages.mjs") else { return };
    let file = |name: &str| made.path().join(name);
    let files = Files {
        short: &[&file("short.json")],
        long: &file("long.json"),
        other: &file("other.json"),
        other_from: 1,
    };
    check(Format::VercelUi, &files, &[alice(), bob()]).await;

    let alice = read(Format::VercelUi, &file("short.json")).unwrap().remove(0);
    // The messages that the SDK itself has converted for a model.
    let of_sdk: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(file("model.json")).unwrap()).unwrap();
    let roles = |all: &[Value], role: &dyn Fn(&Value) -> Value| -> Vec<Value> {
        all.iter().map(role).collect()
    };
    assert_eq!(
        roles(&sketches(&alice.messages), &|it| it[0].clone()),
        roles(&of_sdk, &|it| it["role"].clone())
    );
    // Parts that are only displayed are stored in the metadata.
    assert_eq!(
        Value::Object(alice.messages[2].metadata.clone()),
        json!({
            "vercel-ui.metadata": {"model": "mock"},
            "vercel-ui.parts": [{
                "type": "source-url", "sourceId": "src", "url": "https://tides.example", "title": "Tides",
            }],
        })
    );
    assert_eq!(
        alice.messages[6].metadata["vercel-ui.parts"],
        json!([{"type": "data-weather", "data": {"rain": true}}])
    );
}

fn alice() -> Expected {
    Expected {
        id: "alice",
        messages: vec![
            json!(["system", "Be brief."]),
            json!(["user", "When is the tide?", {"media": "image/png base64 iVBORw0KGgo="}]),
            json!([
                "assistant",
                {"reasoning": "Two harbours.", "native": {"type": "thinking", "signature": "c2lnbmVk"}},
                "I look.",
                {"call": "call_1 tide {\"harbour\":\"Århus\"}"},
                {"call": "call_2 berth {\"number\":99}"},
            ]),
            json!([
                "tool",
                {"result": "call_1", "content": ["{\"harbour\":\"Århus\",\"high\":\"18:40 🌊\"}"]},
                {"error": "call_2", "content": ["It failed: no berth 99"]},
            ]),
            json!([
                "assistant",
                {"reasoning": "Now\n\nI know.", "native": {
                    "type": "reasoning", "id": "rs_1", "encrypted_content": "gAAAB",
                    "summary": [
                        {"type": "summary_text", "text": "Now"},
                        {"type": "summary_text", "text": "I know."},
                    ],
                }},
                "In the evening.",
            ]),
            json!(["user", ""]),
            json!(["assistant", "You wrote nothing.", {"call": "call_3 flag {}"}]),
            json!(["tool", {"result": "call_3", "content": ["Danish"]}]),
        ],
        losses: vec![],
        calls: vec![
            ("call_1", ToolStatus::Ok),
            ("call_2", ToolStatus::Error),
            ("call_3", ToolStatus::Ok),
        ],
    }
}

fn bob() -> Expected {
    Expected {
        id: "bob",
        messages: vec![
            json!(["user", "Where is she?"]),
            json!(["assistant", {"call": "call_4 where {\"ship\":\"Freja\"}"}]),
        ],
        losses: vec![
            "stored message 2: the call of tool \"where\" (id \"call_4\") has no result; it is \
             stored, and sent to models as interrupted: it is unknown whether the tool has run",
        ],
        calls: vec![("call_4", ToolStatus::Pending)],
    }
}
