//! Tests the import of Pydantic AI's files.

use serde_json::json;
use tower_chat::{
    import::{Format, read},
    tool::ToolStatus,
};

use crate::{
    install::made_by,
    support::{Expected, Files, check, sketches},
};

#[tokio::test]
async fn messages_of_pydantic_ai_are_read_stored_and_continued() {
    let Some(made) = made_by("pydantic_ai_messages.py") else { return };
    let file = |name: &str| made.path().join(name);
    let files = Files {
        short: &[&file("conversations.jsonl")],
        long: &file("long.json"),
        other: &file("other.json"),
        other_from: 2,
    };
    check(Format::PydanticAi, &files, &[alice(), bob()]).await;

    let alone = read(Format::PydanticAi, &file("short.json")).unwrap().remove(0);
    assert_eq!((alone.id.as_str(), sketches(&alone.messages)), ("alice", alice().messages));
    let times: Vec<_> = alone.messages.iter().filter_map(|message| message.added_at).collect();
    assert_eq!(times.len(), alone.messages.len());
    assert_eq!(alone.created_at, Some(times[0]));
    assert!(times[0].elapsed().unwrap().as_secs() < 600);
}

fn alice() -> Expected {
    Expected {
        id: "alice",
        messages: vec![
            json!(["system", "Be brief."]),
            json!([
                "user",
                "When is the tide?",
                {"media": "image/png url https://charts.example/7.png"},
                {"media": "image/png base64 +/8="},
            ]),
            json!([
                "assistant",
                {"reasoning": "Two harbours.", "native": {"type": "thinking", "signature": "c2lnbmVk"}},
                "I look.",
                {"call": "call_1 tide {\"harbour\":\"Århus\"}"},
                {"call": "call_2 berth {\"number\": 99}"},
            ]),
            json!([
                "tool",
                {"result": "call_1", "content": ["{\"harbour\":\"Århus\",\"high\":\"18:40 🌊\"}"]},
                {"error": "call_2", "content": ["there is no berth 99"]},
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
            json!(["assistant", "You wrote nothing."]),
        ],
        losses: vec![],
        calls: vec![("call_1", ToolStatus::Ok), ("call_2", ToolStatus::Error)],
    }
}

fn bob() -> Expected {
    Expected {
        id: "bob",
        messages: vec![
            json!(["user", "Whose ship is it?"]),
            json!([
                "assistant",
                {"call": "call_3 ship {\"big\":12345678901234567890123}"},
                {"call": "call_4 flag "},
            ]),
            json!([
                "tool",
                {"result": "call_4", "content": ["Danish"]},
                {"result": "call_3", "content": ["The Freja"]},
            ]),
            json!(["assistant", "The Freja's."]),
            json!(["user", "Where is she?"]),
            json!(["assistant", {"call": "call_5 where {\"ship\":\"Freja\"}"}]),
        ],
        losses: vec![
            "stored message 6: the call of tool \"where\" (id \"call_5\") has no result; it is \
             stored, and sent to models as interrupted: it is unknown whether the tool has run",
        ],
        calls: vec![
            ("call_3", ToolStatus::Ok),
            ("call_4", ToolStatus::Ok),
            ("call_5", ToolStatus::Pending),
        ],
    }
}
