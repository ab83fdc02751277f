//! What is printed of a store.

use crate::support::*;
use serde_json::json;
use tower_chat::{
    ApprovalRequest, ConversationKey, Message, MessageId, Part, Role, RunId, ToolCall, ToolResult,
    store::{HistoryStore, Revision, author::Write},
};
use tower_chat_sqlite::SqliteStore;

fn fill(store: &Store, conversations: &[(&str, &str, Vec<Message>)]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async {
        let opened = SqliteStore::open(store.path()).await.unwrap();
        for (scope, id, messages) in conversations {
            let first = MessageId { run: RunId::new(), index: 0 };
            let messages = messages.iter().cloned().map(Into::into);
            let key = ConversationKey::new(*scope, *id);
            let write = Write::new(key, first, Revision::ABSENT, messages);
            opened.append(opened.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
        opened.close().await.unwrap();
    });
}

#[test]
fn conversations_of_all_scopes_come_out_once_in_the_byte_order_of_their_ids() {
    let store = Store::new();
    let message = || vec![Message::user("hi")];
    fill(
        &store,
        &[
            ("b", "z", message()),
            ("b", "a", message()),
            ("a", "é", message()),
            ("a", "Z", message()),
            ("c", "m", message()),
        ],
    );
    let ids = |more: &[&str]| export(&store.argument(), more).into_keys().collect::<Vec<_>>();
    assert_eq!(ids(&[]), ["Z", "a", "m", "z", "é"]);
    assert_eq!(ids(&["--scope", "b"]), ["a", "z"]);
    assert!(ids(&["--scope", "nobody"]).is_empty());
}

#[test]
fn more_conversations_than_a_page_come_out_each_once() {
    let store = Store::new();
    let ids: Vec<String> = (0..1050).map(|number| format!("c{number:05}")).collect();
    let all: Vec<_> =
        ids.iter().map(|id| ("play", id.as_str(), vec![Message::user("hi")])).collect();
    fill(&store, &all);
    assert_eq!(export(&store.argument(), &[]).into_keys().collect::<Vec<_>>(), ids);
}

#[test]
fn the_record_is_everything_and_the_export_what_a_model_is_shown() {
    let store = Store::new();
    let waiting = ApprovalRequest::new("a1", ToolCall::new("c9", "pay", "{\"sum\":1}"), true);
    let messages = vec![
        Message::user("go"),
        Message::tool_calls([
            ToolCall::new("c1", "look", "{}"),
            ToolCall::new("c2", "weigh", "{}"),
        ]),
        Message::tool_results([ToolResult::error("c2", "too heavy")]),
        Message::user("pay"),
        Message::new(Role::Assistant, vec![Part::text("May I?"), Part::ApprovalRequest(waiting)]),
    ];
    fill(&store, &[("play", "x", messages)]);
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let result =
        json!({"role": "tool", "tool_call_id": "c2", "content": "too heavy", "x_error": true});
    assert_eq!(
        export(&store.argument(), &[])["x"],
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [call("c2", "weigh")]},
            result,
            {"role": "user", "content": "pay"},
            {"role": "assistant", "content": "May I?"},
        ])
    );
    assert_eq!(
        export(&store.argument(), &["--record"])["x"],
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [call("c1", "look"), call("c2", "weigh")]},
            result,
            {"role": "user", "content": "pay"},
            {"role": "assistant", "content": "May I?", "x_parts": [{"approval_request": {
                "id": "a1",
                "call": {"id": "c9", "name": "pay", "arguments": "{\"sum\":1}"},
                "required": true,
            }}]},
        ])
    );
}

#[test]
fn a_dangling_call_is_in_the_record_alone() {
    let store = Store::new();
    let line = json!({"id": "x", "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "found"},
    ]});
    let file = store.file("x.jsonl", &line.to_string());
    play_well(&[&file, "--store", &store.argument()]);
    let (shown, record) =
        (export(&store.argument(), &[]), export(&store.argument(), &["--record"]));
    let messages = line["messages"].as_array().unwrap();
    assert_eq!(shown["x"], json!(messages[..1]));
    assert_eq!(record["x"], json!(messages[..2]));
}

#[test]
fn an_export_changes_nothing() {
    let store = Store::new();
    play_well(&[&transcript("shapes.jsonl"), "--store", &store.argument()]);
    let before = std::fs::read(store.path()).unwrap();
    let (first, second) =
        (export_text(&store.argument(), &[]), export_text(&store.argument(), &[]));
    assert_eq!(first, second);
    assert_eq!(std::fs::read(store.path()).unwrap(), before);
}
