//! Tests which items of an answer of OpenAI Responses have their ids removed if the replay omits a
//! call of the answer.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat_core::{Message, Messages, Native, Part, Reasoning, Role, ToolCall, ToolResult};

use super::WIRE;
use crate::replay::{DanglingCalls, Replay, ToolHistory, without_calls::without_calls};

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
/// items in the replayed answer.
fn ids_after<const N: usize>(parts: Vec<Part>, answered: [&str; N]) -> Vec<String> {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push(&Arc::new(Message::new(Role::Assistant, parts)));
    let results = answered.map(|id| ToolResult::new(id, format!("found {id}")));
    replay.push(&Arc::new(Message::tool_results(results)));
    replay.push(&Arc::new(Message::user("go on")));
    ids_in(&replay.view().take(1))
}

/// Returns the ids of the items in these messages, with `-` for an item without an id.
fn ids_in(messages: &Messages) -> Vec<String> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let natives = parts.filter_map(|part| match part {
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

#[test]
fn a_call_that_is_sent_later_with_its_result_loses_its_id() {
    for dangling in [DanglingCalls::Drop, DanglingCalls::Interrupted] {
        let mut replay = Replay::new(dangling);
        let found = |id: &str| Message::tool_results([ToolResult::new(id, format!("found {id}"))]);
        for message in [
            Message::new(Role::Assistant, vec![reasoning("rs_1"), call("1"), call("2")]),
            found("2"),
            Message::user("go on"),
            Message::assistant("I go on."),
            found("1"),
        ] {
            replay.push(&Arc::new(message));
        }
        let output = replay.view();
        let calls = output.iter().flat_map(|message| message.calls());
        let calls: Vec<_> = calls.filter_map(|call| call.id.as_deref()).collect();
        assert_eq!(calls, ["2", "1"], "{dangling:?}");
        assert_eq!(ids_in(&output), ["-", "-", "-"], "{dangling:?}");
    }
}

#[test]
fn steps_that_omit_calls_remove_the_ids_of_linked_items() {
    let parts = vec![reasoning("rs_1"), call("1"), reasoning("rs_2"), call("2"), call("3")];
    let parts = [parts, vec![reasoning("rs_3"), Part::text("Done.")]].concat();
    let messages: Messages = [Message::new(Role::Assistant, parts)].into();
    let without_second = without_calls(&messages, |_| vec![false, true, false]);
    assert_eq!(ids_in(&without_second), ["rs_1", "fc_1", "-", "-", "rs_3"]);
    assert_eq!(ids_in(&ToolHistory::Omit.apply(&messages)), ["-", "-", "rs_3"]);
}
