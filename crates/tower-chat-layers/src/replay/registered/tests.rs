//! Tests which calls are outdated.

use tower_chat_core::{Message, ToolResult};

use super::*;
use crate::replay::generated::check_step;

fn round(calls: &[(&str, &str, &str)]) -> Vec<Message> {
    let asked = calls.iter().map(|(id, name, arguments)| ToolCall::new(*id, *name, *arguments));
    let answers = calls.iter().map(|(id, ..)| ToolResult::new(*id, format!("of {id}")));
    vec![Message::tool_calls(asked), Message::tool_results(answers)]
}

fn left(messages: &Messages) -> Vec<String> {
    let calls = messages.iter().flat_map(|message| message.calls());
    let results = messages.iter().flat_map(|message| message.results());
    calls
        .map(|call| call.name.clone())
        .chain(results.map(|result| result.call_id.clone().unwrap()))
        .collect()
}

#[test]
fn a_call_of_an_unregistered_tool_is_omitted_with_its_result() {
    let messages = round(&[("1", "old", "{}"), ("2", "new", "{}")]).into();
    let policy = OutdatedCalls::keep().drop_unregistered();
    assert_eq!(left(&policy.apply(&messages, Some(&["new"]))), ["new", "2"]);
    assert_eq!(policy.apply(&messages, Some::<&[&str]>(&[])).len(), 0);
}

#[test]
fn an_empty_message_after_omitted_calls_is_omitted_too() {
    let [asking, _] = <[Message; 2]>::try_from(round(&[("1", "old", "{}")])).unwrap();
    let messages = [Message::user("u"), asking, Message::tool_results([])].into();
    let policy = OutdatedCalls::keep().drop_unregistered();
    assert_eq!(policy.apply(&messages, Some(&["new"])).len(), 1);
}

#[test]
fn no_call_is_outdated_if_the_registered_tools_are_unknown() {
    let messages: Messages = round(&[("1", "old", "{}")]).into();
    let policy = OutdatedCalls::keep().drop_unregistered();
    assert_eq!(policy.apply(&messages, None::<&[&str]>), messages);
}

#[test]
fn a_call_whose_arguments_are_neither_empty_nor_an_object_is_omitted() {
    let messages = round(&[
        ("1", "a", r#"{"x": "#),
        ("2", "b", ""),
        ("3", "c", "[1]"),
        ("4", "d", r#"{"x": {"y": [1e999]}} "#),
        ("5", "e", "{} {}"),
    ])
    .into();
    let policy = OutdatedCalls::keep().drop_unreadable_arguments();
    assert_eq!(left(&policy.apply(&messages, None::<&[&str]>)), ["b", "d", "2", "4"]);
}

#[test]
fn a_result_names_a_call_without_an_id_by_the_position_of_its_message() {
    let asked = ["old", "new"].map(|tool| ToolCall::without_id(tool, "{}"));
    let answers = ["call_1_1", "call_1_0"].map(|id| ToolResult::new(id, format!("of {id}")));
    let (asking, answers) = (Message::tool_calls(asked), Message::tool_results(answers));
    let messages = [Message::user("u"), asking, answers].into();
    let policy = OutdatedCalls::keep().drop_unregistered();
    let output = policy.apply(&messages, Some(&["new"]));
    let results = output.iter().flat_map(|message| message.results());
    let results: Vec<String> = results.map(ToolResult::text).collect();
    assert_eq!(results, ["of call_1_1"]);
}

#[test]
fn outdated_calls_are_sent_by_default() {
    let messages: Messages = round(&[("1", "old", "[")]).into();
    assert!(OutdatedCalls::default().is_off());
    assert_eq!(OutdatedCalls::keep().apply(&messages, Some(&["new"])), messages);
}

#[test]
fn omitting_outdated_calls_keeps_every_history_valid() {
    let policy = OutdatedCalls::keep().drop_unregistered().drop_unreadable_arguments();
    check_step(|messages, _| policy.apply(messages, Some(&["look", "search"])), &[]);
}
