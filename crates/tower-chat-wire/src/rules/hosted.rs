//! Finds [provider-executed](tower_chat_core::ToolCall::provider_executed) calls without results.
//! Such calls remain when an answer is cut off.
//!
//! A wire is a provider's JSON format.

use std::collections::HashSet;

use tower_chat_core::{Message, Messages, Native, Part, Role};

use super::natives::wire_name;
use crate::{body::BodyWire, fields::Fields};

/// Returns the ids of the provider-executed calls without results that the service would refuse.
///
/// The service accepts a provider-executed call without a result only if the service can continue
/// the call: in an assistant message at the end of the request, or before results of the client's
/// tools.
///
/// Checks only the wires Bedrock Converse and Responses. On the wire Anthropic, the writer of the
/// body omits these calls.
pub(super) fn unanswered_call_ids(messages: &Messages, wire: BodyWire) -> HashSet<String> {
    let mut calls = HashSet::new();
    if !matches!(wire, BodyWire::BedrockConverse | BodyWire::OpenAiResponses) {
        return calls;
    }
    // The nearest later message that is not an assistant message. The loop runs backwards.
    let mut next: Option<&Message> = None;
    for message in messages.iter().rev() {
        if message.role != Role::Assistant {
            next = Some(message);
        } else if next.is_some_and(|next| next.results().next().is_none()) {
            calls.extend(message.parts.iter().filter_map(|part| provider_call_id(part, wire)));
        }
    }
    if !calls.is_empty() {
        let answers = messages.iter().filter(|message| message.role == Role::Assistant);
        let parts = answers.flat_map(|message| &message.parts);
        let answered: HashSet<_> = parts.filter_map(|part| result_call_id(part, wire)).collect();
        calls.retain(|id| !answered.contains(id));
    }
    calls
}

/// Returns the id of a provider-executed call whose item does not contain the result.
pub(super) fn provider_call_id(part: &Part, wire: BodyWire) -> Option<String> {
    match part {
        Part::ToolCall(call) if call.provider_executed && wire == BodyWire::OpenAiResponses => {
            let kind = Fields::of_native(call.native.as_ref(), wire_name(wire))?.text("type")?;
            matches!(kind.as_str(), "shell_call" | "tool_search_call").then(|| call.id.clone())?
        }
        Part::Native(native) => {
            let block = bedrock_block(native, wire, "toolUse")?;
            let is_of_client = block.text("type").is_none_or(|kind| kind == "tool_use");
            if is_of_client { None } else { block.text("toolUseId") }
        }
        _ => None,
    }
}

/// Returns the call id of a result. Returns `None` for any other part.
fn result_call_id(part: &Part, wire: BodyWire) -> Option<String> {
    match part {
        Part::ToolResult(result) => result.call_id.clone(),
        Part::Native(native) if wire == BodyWire::OpenAiResponses => {
            let item = Fields::of_native(Some(native), wire_name(wire))?;
            item.text("type").filter(|kind| kind.ends_with("_output"))?;
            item.text("call_id")
        }
        Part::Native(native) => bedrock_block(native, wire, "toolResult")?.text("toolUseId"),
        _ => None,
    }
}

/// Returns the field `toolUse` or `toolResult` of a block of Bedrock that is stored as a native
/// part.
fn bedrock_block(native: &Native, wire: BodyWire, kind: &str) -> Option<Fields> {
    if wire != BodyWire::BedrockConverse {
        return None;
    }
    Fields::of_native(Some(native), wire_name(wire))?.get(kind)?.parse().ok()
}
