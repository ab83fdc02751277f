//! Calls of a service's own tools that never got their results, because the answer was cut off.

use std::collections::HashSet;

use tower_chat_core::{Message, Messages, Native, Part, Role};

use super::natives::wire_name;
use crate::{body::BodyWire, fields::Fields};

/// The ids of calls of the service's own tools that are left out, since nothing answers them.
///
/// A service refuses such a call, unless it goes on with the call: in the last message of the request, and
/// before results of tools of the client. Anthropic's writer does the same for its own wire.
pub(super) fn unanswered(messages: &Messages, wire: BodyWire) -> HashSet<String> {
    let mut calls = HashSet::new();
    if !matches!(wire, BodyWire::BedrockConverse | BodyWire::OpenAiResponses) {
        return calls;
    }
    // What follows the messages that were looked at, from the last one back.
    let mut next: Option<&Message> = None;
    for message in messages.iter().rev() {
        if message.role != Role::Assistant {
            next = Some(message);
        } else if next.is_some_and(|next| next.results().next().is_none()) {
            calls.extend(message.parts.iter().filter_map(|part| call_of(part, wire)));
        }
    }
    if !calls.is_empty() {
        let answers = messages.iter().filter(|message| message.role == Role::Assistant);
        let parts = answers.flat_map(|message| &message.parts);
        let answered: HashSet<_> = parts.filter_map(|part| result_of(part, wire)).collect();
        calls.retain(|id| !answered.contains(id));
    }
    calls
}

/// The id of the call of the service's own tool that a part is, if the result is an item of its own.
pub(super) fn call_of(part: &Part, wire: BodyWire) -> Option<String> {
    match part {
        Part::ToolCall(call) if call.provider_executed && wire == BodyWire::OpenAiResponses => {
            let kind = Fields::of_native(call.native.as_ref(), wire_name(wire))?.text("type")?;
            matches!(kind.as_str(), "shell_call" | "tool_search_call").then(|| call.id.clone())?
        }
        Part::Native(native) => {
            let block = block(native, wire, "toolUse")?;
            let is_of_client = block.text("type").is_none_or(|kind| kind == "tool_use");
            if is_of_client { None } else { block.text("toolUseId") }
        }
        _ => None,
    }
}

/// The id of the call that a part of an answer is the result of.
fn result_of(part: &Part, wire: BodyWire) -> Option<String> {
    match part {
        Part::ToolResult(result) => result.call_id.clone(),
        Part::Native(native) if wire == BodyWire::OpenAiResponses => {
            let item = Fields::of_native(Some(native), wire_name(wire))?;
            item.text("type").filter(|kind| kind.ends_with("_output"))?;
            item.text("call_id")
        }
        Part::Native(native) => block(native, wire, "toolResult")?.text("toolUseId"),
        _ => None,
    }
}

/// The block of Bedrock that a native part is, if it is of this kind.
fn block(native: &Native, wire: BodyWire, kind: &str) -> Option<Fields> {
    if wire != BodyWire::BedrockConverse {
        return None;
    }
    Fields::of_native(Some(native), wire_name(wire))?.get(kind)?.parse().ok()
}
