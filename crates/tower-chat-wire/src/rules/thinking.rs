//! Removes the options that enable Claude's thinking, if the service would refuse the request
//! because of these options.
//!
//! A turn consists of the answers and the results after the last user message. A request enables
//! manual thinking with an option of the type `enabled` and a budget. The service refuses such a
//! request if it continues a turn whose first answer does not begin with a thinking block:
//! *Expected `thinking` or `redacted_thinking`, but found `tool_use`*. The block is missing if
//! another service made the answer, or if thinking was not enabled then.
//!
//! Adaptive thinking is not removed, because the service accepts it in every turn.

use std::sync::Arc;

use serde_json::{Map, Value};
use tower_chat_core::{Message, Part, Reasoning, Role};

use super::natives::wire_name;
use crate::{anthropic, bedrock_converse, body::BodyWire};

/// The names of the option that enables thinking. Bedrock's documentation uses `reasoning_config`.
const OPTIONS: [&str; 2] = ["thinking", "reasoning_config"];

/// The type of an entry of `context_management.edits` that the service refuses in a request without
/// thinking (<https://github.com/anthropics/claude-code/issues/11971>).
const CLEAR_THINKING: &str = "clear_thinking_20251015";

/// Returns whether the options of a request enable manual thinking.
pub(super) fn is_enabled(extra: &Map<String, Value>, wire: BodyWire) -> bool {
    let fields = match wire {
        BodyWire::BedrockConverse => {
            extra.get(bedrock_converse::MODEL_FIELDS).and_then(Value::as_object)
        }
        _ => Some(extra),
    };
    fields.is_some_and(|fields| OPTIONS.iter().any(|name| enables_thinking(fields.get(*name))))
}

fn enables_thinking(option: Option<&Value>) -> bool {
    let kind = option.and_then(|option| option.get("type"));
    kind.is_some_and(|kind| kind == "enabled")
}

/// Removes the options that enable manual thinking, and the edit that requires them.
pub(super) fn disable(extra: &mut Map<String, Value>, wire: BodyWire) {
    if wire == BodyWire::BedrockConverse {
        if let Some(Value::Object(fields)) = extra.get_mut(bedrock_converse::MODEL_FIELDS) {
            remove_thinking(fields);
        }
    } else {
        remove_thinking(extra);
    }
}

fn remove_thinking(fields: &mut Map<String, Value>) {
    for name in OPTIONS {
        if enables_thinking(fields.get(name)) {
            fields.remove(name);
        }
    }
    let Some(Value::Object(management)) = fields.get_mut("context_management") else { return };
    let Some(Value::Array(edits)) = management.get_mut("edits") else { return };
    let count = edits.len();
    edits.retain(|edit| edit.get("type").is_none_or(|kind| kind != CLEAR_THINKING));
    let is_last = edits.is_empty() && count > 0 && management.len() == 1;
    if is_last {
        fields.remove("context_management");
    }
}

/// Returns whether the messages end with results, and the first answer of the current turn is sent
/// without a thinking block at its beginning.
pub(super) fn continues_without_thinking(messages: &[Arc<Message>], wire: BodyWire) -> bool {
    let mut has_results = false;
    let mut begins_with_thinking = None;
    for message in messages.iter().rev() {
        match message.role {
            // The loop runs backwards, so that the first answer of the turn sets this variable
            // last.
            Role::Assistant => begins_with_thinking = Some(starts_with_thinking(message, wire)),
            // Instructions do not end a turn, because the wires send them separately from the
            // messages.
            Role::System | Role::Developer => {}
            _ if begins_with_thinking.is_none() => {
                has_results |= message.results().next().is_some();
            }
            _ if !has_only_results(message) => break,
            _ => {}
        }
    }
    has_results && begins_with_thinking == Some(false)
}

fn has_only_results(message: &Message) -> bool {
    message.parts.iter().all(|part| matches!(part, Part::ToolResult(_)))
}

fn starts_with_thinking(message: &Message, wire: BodyWire) -> bool {
    let mut parts = message.parts.iter().filter(|part| !matches!(part, Part::Native(_)));
    matches!(parts.next(), Some(Part::Reasoning(reasoning)) if is_sent(reasoning, wire))
}

fn is_sent(reasoning: &Reasoning, wire: BodyWire) -> bool {
    match wire {
        BodyWire::Anthropic => anthropic::is_sent(reasoning),
        _ => reasoning.native.as_ref().is_some_and(|native| &*native.wire == wire_name(wire)),
    }
}
