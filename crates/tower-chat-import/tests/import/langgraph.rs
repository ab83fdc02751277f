//! Tests the import of LangGraph's files.

use serde_json::{Value, json};
use tower_chat::{
    import::{Format, read},
    tool::ToolStatus,
};

use crate::{
    install::made_by,
    support::{Expected, Files, check},
};

#[tokio::test]
async fn threads_of_langgraph_are_read_stored_and_continued() {
    let Some(made) = made_by("langgraph_threads.py") else { return };
    for kind in ["", "delta-"] {
        let file = |name: &str| made.path().join(format!("{kind}{name}.db"));
        let files = Files {
            short: &[&file("short")],
            long: &file("long"),
            other: &file("other"),
            other_from: 1,
        };
        check(Format::LangGraph, &files, &[alice(), bob()]).await;
        let alice = read(Format::LangGraph, &file("short")).unwrap().remove(0);
        assert_eq!(alice.messages[3].metadata, serde_json::Map::new());
        assert_eq!(
            Value::Object(alice.messages[5].metadata.clone()),
            json!({"langgraph.artifact": {"sheet": 7}})
        );
        assert!(alice.created_at.is_some_and(|time| time.elapsed().unwrap().as_secs() < 600));
    }
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
                {"call": "call_2 berth {\"number\":12345678901234567890}"},
                {"call": "call_3 chart {\"number\":7}"},
            ]),
            json!(["tool", {"result": "call_1", "content": ["High water in Århus 🌊"]}]),
            json!(["tool", {"error": "call_2", "content": [
                "Error: ValueError('there is no berth 12345678901234567890')\n Please fix your mistakes.",
            ]}]),
            json!(["tool", {"result": "call_3", "content": [
                "The chart", {"media": "image/* url https://charts.example/7.png"},
            ]}]),
            json!(["assistant", "In the evening."]),
            json!(["user", ""]),
            json!(["assistant", "You wrote nothing."]),
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
            json!(["user", "Whose ship is it?"]),
            json!([
                "assistant",
                {"reasoning": "Which ship?", "native": null},
                {"call": "call_4 ship {}"},
                {"call": "call_5 flag {\"big\":1}"},
            ]),
            json!(["tool", {"result": "call_5", "content": ["Danish"]}]),
            json!(["tool", {"result": "call_4", "content": ["The Freja"]}]),
            json!(["assistant", "The Freja's."]),
            json!(["user", "Where is she?"]),
            json!(["assistant", {"call": "call_6 where {\"ship\":\"Freja\"}"}]),
        ],
        losses: vec![
            "stored message 7: the call of tool \"where\" (id \"call_6\") has no result; it is \
             stored, and sent to models as interrupted: it is unknown whether the tool has run",
        ],
        calls: vec![
            ("call_4", ToolStatus::Ok),
            ("call_5", ToolStatus::Ok),
            ("call_6", ToolStatus::Pending),
        ],
    }
}
