//! Tests replays without calls and results.

use tower_chat_core::{Message, Reasoning, ToolCall, ToolResult};

use super::*;
use crate::replay::generated::{check_step, history, output_of};

/// A text in the same message as a call remains. The replay needs no finish times, because no
/// result is sent.
#[test]
fn text_in_messages_with_calls_is_sent_if_the_tool_history_is_omitted() {
    let mut asking = Message::tool_calls([ToolCall::new("1", "look", "{}")]);
    asking.parts.insert(0, Reasoning::new("hm").into());
    asking.parts.insert(0, Part::text("Let me look."));
    let messages: Messages = [
        Message::user("u"),
        asking,
        Message::tool_results([ToolResult::new("1", "found")]),
        Message::tool_calls([ToolCall::new("2", "look", "{}")]),
        Message::tool_results([ToolResult::new("2", "found")]),
        Message::assistant("a"),
    ]
    .into();
    let replayed = ToolHistory::Omit.apply(&messages);
    let expected =
        [Message::user("u"), Message::assistant("Let me look."), Message::assistant("a")];
    assert_eq!(replayed, expected.into());
}

#[test]
fn omitting_the_tool_history_omits_provider_executed_calls() {
    let mut call = ToolCall::new("ws", "web_search", "{}");
    call.provider_executed = true;
    let parts = vec![call.into(), ToolResult::new("ws", "pages").into(), Part::text("Found.")];
    let messages = Messages::from(Message::new(Role::Assistant, parts));
    assert_eq!(ToolHistory::Omit.apply(&messages), Message::assistant("Found.").into());
}

#[test]
fn a_history_without_tools_is_shared() {
    let messages: Messages = [Message::user("u"), Message::assistant("a")].into();
    let replayed = ToolHistory::Omit.apply(&messages);
    assert!(messages.iter().zip(replayed.iter()).all(|(a, b)| std::sync::Arc::ptr_eq(a, b)));
}

#[test]
fn omitting_the_tool_history_leaves_a_valid_history_without_calls_and_results() {
    check_step(|messages, _| ToolHistory::Omit.apply(messages), &[]);
    for seed in 1..100 {
        let replayed = ToolHistory::Omit.apply(&output_of(&history(seed)));
        assert!(replayed.iter().all(|message| message.role != Role::Tool));
        assert!(replayed.iter().all(|message| message.asked_calls().next().is_none()));
    }
}
