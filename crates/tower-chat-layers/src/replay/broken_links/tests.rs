//! Tests which items of an answer of OpenAI Responses have their ids removed if the replay omits a
//! call of the answer.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat_core::{Message, Native, Part, Reasoning, Role, ToolCall, ToolResult};

use super::WIRE;
use crate::replay::{DanglingCalls, Replay};

fn native(item: &Value) -> Option<Native> {
    Some(Native::new(WIRE, item.to_string().parse().unwrap()))
}

fn reasoning(id: &str) -> Part {
    let mut reasoning = Reasoning::new(format!("thoughts {id}"));
    reasoning.native = native(&json!({"id": id, "encrypted_content": format!("secret {id}")}));
    reasoning.into()
}

fn call(call_id: &str) -> Part {
    let mut call = ToolCall::new(call_id, "look", "{}");
    call.native = native(&json!({"id": format!("fc_{call_id}")}));
    call.into()
}

/// Replays an answer in which only the calls `answered` have results. Returns the ids of the
/// replayed items, with `-` for an item without an id.
fn ids_after<const N: usize>(parts: Vec<Part>, answered: [&str; N]) -> Vec<String> {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push(&Arc::new(Message::new(Role::Assistant, parts)));
    let results = answered.map(|id| ToolResult::new(id, format!("found {id}")));
    replay.push(&Arc::new(Message::tool_results(results)));
    replay.push(&Arc::new(Message::user("go on")));
    let output = replay.view();
    let natives = output.get(0).unwrap().parts.iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => reasoning.native.as_ref(),
        Part::ToolCall(call) => call.native.as_ref(),
        Part::Native(native) => Some(native),
        _ => None,
    });
    let id_of = |native: &Native| {
        let item: Value = native.item.parse().unwrap();
        item.get("id").map_or("-", |id| id.as_str().unwrap()).to_owned()
    };
    natives.map(id_of).collect()
}

#[test]
fn if_a_call_is_omitted_its_reasoning_and_the_other_calls_after_it_lose_their_ids() {
    let parts = vec![
        Part::text("Let me look."),
        reasoning("rs_1"),
        call("1"),
        call("2"),
        reasoning("rs_2"),
    ];
    let parts = || [parts.clone(), vec![call("3")]].concat();
    assert_eq!(ids_after(parts(), ["2", "3"]), ["-", "-", "rs_2", "fc_3"]);
    assert_eq!(ids_after(parts(), ["1", "2", "3"]), ["rs_1", "fc_1", "fc_2", "rs_2", "fc_3"]);
}

/// If the replay omits a call, only two kinds of items lose their ids: the reasoning directly before the
/// call, and the items between the call and the next reasoning.
#[test]
fn an_omitted_call_removes_no_ids_before_its_reasoning_or_after_the_next_reasoning() {
    let search = native(&json!({"id": "ws_1", "type": "web_search_call"})).unwrap();
    let parts = vec![
        Part::text("Let me look."),
        Part::text("Then let me compare."),
        reasoning("rs_1"),
        call("1"),
        call("2"),
        search.into(),
        reasoning("rs_2"),
        call("3"),
        reasoning("rs_3"),
        call("4"),
        call("5"),
    ];
    let left = ids_after(parts, ["2", "3", "5"]);
    assert_eq!(left, ["-", "-", "-", "rs_2", "fc_3", "-", "-"]);
}

#[test]
fn calls_without_preceding_reasoning_keep_their_ids_if_another_call_is_omitted() {
    let parts = vec![Part::text("Let me look."), call("1"), call("2")];
    assert_eq!(ids_after(parts, ["2"]), ["fc_2"]);
}
