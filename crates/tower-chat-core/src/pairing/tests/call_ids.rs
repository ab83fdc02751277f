//! Tests of the ids of calls.

use std::borrow::Cow;

use crate::{
    Message, MessageId, RunId, ToolCall,
    pairing::{asked_call, have_distinct_ids, ids_of_calls},
};

fn effective_call_ids(message: &Message) -> Vec<String> {
    ids_of_calls(message).into_iter().map(Cow::into_owned).collect()
}

#[test]
fn a_call_with_an_id_keeps_this_id() {
    let message = Message::tool_calls([ToolCall::new("call_7", "a", "{}")]);
    assert_eq!(effective_call_ids(&message), ["call_7"]);
}

#[test]
fn missing_and_empty_ids_are_generated_distinct_and_stable() {
    let calls = [ToolCall::without_id("a", "{}"), ToolCall::new("", "b", "{}")];
    let mut message = Message::tool_calls(calls);
    message.id = Some(MessageId { run: RunId::new(), index: u32::MAX });
    let ids = effective_call_ids(&message);
    assert_eq!(ids, effective_call_ids(&message));
    assert_ne!(ids[0], ids[1]);
    assert!(ids.iter().all(|id| id.len() <= 40), "{ids:?}");
}

#[test]
fn calls_of_one_message_never_share_an_id() {
    let ids = ["x", "x", "call_0_1", ""];
    let message = Message::tool_calls(ids.map(|id| ToolCall::new(id, "look", "{}")));
    assert_eq!(effective_call_ids(&message), ["x", "call_0_1_1", "call_0_1", "call_0_3"]);
    assert!(!have_distinct_ids(message.parts.iter().filter_map(asked_call)));
    let calls: Vec<ToolCall> =
        (0..40).map(|id| ToolCall::new(id.to_string(), "look", "{}")).collect();
    assert!(have_distinct_ids(calls.iter()) && have_distinct_ids(calls[..3].iter()));
    assert!(!have_distinct_ids(calls.iter().chain(&calls[..1])));
    assert!(!have_distinct_ids(calls[..2].iter().chain(&calls[..1])));
}
