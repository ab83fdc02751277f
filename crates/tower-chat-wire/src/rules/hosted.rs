//! Finds calls of a service's own tools that have no results, because the answer was cut off.

use std::collections::HashSet;

use tower_chat_core::{Message, Messages, Native, Part, Role};

use super::natives::wire_name;
use crate::{body::BodyWire, fields::Fields};

/// Returns the ids of the unanswered calls of the service's own tools. The request is sent without these
/// calls.
///
/// A service refuses an unanswered call, except where the service continues the call: in the last
/// message of the request, and before results of tools of the client. Anthropic's writer leaves out the
/// same calls in its own wire.
pub(super) fn unanswered(messages: &Messages, wire: BodyWire) -> HashSet<String> {
    let mut calls = HashSet::new();
    if !matches!(wire, BodyWire::BedrockConverse | BodyWire::OpenAiResponses) {
        return calls;
    }
    // The message after the current one; the loop goes from the last message to the first.
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

/// Returns the id of the call in a part, if the part is a call of a service's own tool whose result is a
/// separate item.
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

/// Returns the id of the call whose result the part is.
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

/// Returns the block of Bedrock in a native part, if the block is of this kind.
fn block(native: &Native, wire: BodyWire, kind: &str) -> Option<Fields> {
    if wire != BodyWire::BedrockConverse {
        return None;
    }
    Fields::of_native(Some(native), wire_name(wire))?.get(kind)?.parse().ok()
}
