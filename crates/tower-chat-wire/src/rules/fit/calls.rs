//! Changes tool calls, and adds the reasoning or the signature that a service requires in messages
//! with tool calls that a model of another service made.
//!
//! A wire is a provider's JSON format.

use serde_json::json;
use tower_chat_core::{Change, ChangeKind, Message, Part, Reasoning, ToolCall};

use super::{FittedParts, Fitter};
use crate::{
    body::BodyWire,
    fields::{Fields, raw},
    rules::{
        arguments,
        natives::wire_name,
        service_rules::{ArgumentRule, ForeignRule},
    },
};

impl Fitter<'_> {
    /// Returns the call to send.
    pub(super) fn fit_call(
        &mut self,
        message: &Message,
        call: &ToolCall,
        fitted_parts: &mut FittedParts,
    ) -> ToolCall {
        let mut sent = call.clone();
        sent.native = self.own_native(message, call.native.as_ref(), fitted_parts);
        sent.id = self.ids.call(call.id.as_deref());
        if sent.id != call.id {
            fitted_parts.has_changed = true;
            let ids = (call.id.as_deref().unwrap_or_default(), sent.id.as_deref());
            let what = format!("the call {:?} is sent as {:?}", ids.0, ids.1.unwrap_or_default());
            self.record_change(message, ChangeKind::CallId, what);
        }
        if let Some(name) = self.sent_name(&call.name) {
            fitted_parts.has_changed = true;
            sent.name = name;
        }
        if self.rules.definitions_with_calls && !self.called_tools.contains(&sent.name) {
            self.called_tools.push(sent.name.clone());
        }
        if self.rules.arguments == ArgumentRule::Object
            && has_json_arguments(&sent, self.rules.wire)
            && (has_text_arguments(self.rules.wire) || !call.arguments.trim().is_empty())
            && let Some(arguments) = arguments::as_object(&call.arguments)
        {
            fitted_parts.has_changed = true;
            sent.arguments = arguments;
            let what = format!("the arguments of a call of {:?} are made a JSON object", call.name);
            self.record_change(message, ChangeKind::Arguments, what);
        }
        sent
    }

    /// Returns the name to send for a tool, or `None` if the service accepts the tool's own name.
    pub(super) fn sent_name(&mut self, name: &str) -> Option<String> {
        let count = self.names.len();
        let sent = self.names.map_name(name, &self.rules.tool_names)?;
        if self.names.len() > count {
            let what = format!("the tool {name:?} is sent as {sent:?}");
            self.changes.push(Change::new(ChangeKind::Name, what));
        }
        Some(sent)
    }

    /// Adds the reasoning or the signature that the service requires in an answer with calls.
    pub(super) fn complete_calls(&mut self, message: &Message, fitted_parts: &mut FittedParts) {
        if !fitted_parts.has_call {
            return;
        }
        match self.rules.foreign_calls {
            ForeignRule::Nothing => {}
            ForeignRule::Reasoning { field, text } => {
                let wire = self.rules.wire;
                let is_own = |part: &Part| is_reasoning_in(part, field, wire);
                let is_enough = |part: &Part| !text_of(part).is_empty() || text.is_empty();
                if !fitted_parts.parts.iter().any(|part| is_own(part) && is_enough(part)) {
                    fitted_parts.parts.retain(|part| !is_own(part));
                    fitted_parts.parts.insert(0, placeholder(field, text, wire));
                    fitted_parts.has_changed = true;
                    let what = format!("an empty {field} is added to calls that have no {field}");
                    self.record_change(message, ChangeKind::Reasoning, what);
                }
            }
            // On the wire Gemini, the writer of the body adds this value.
            ForeignRule::Signature(signature) if self.rules.wire == BodyWire::OpenAiChat => {
                if sign_first_call(fitted_parts, signature) {
                    let what = "a placeholder is added to a call without a signature";
                    self.record_change(message, ChangeKind::Reasoning, what);
                }
            }
            ForeignRule::Signature(_) => {}
        }
    }
}

/// Returns whether the arguments of the call must be JSON. The arguments of custom tools are free
/// text. On Responses, types of calls other than `function_call` have other formats.
fn has_json_arguments(call: &ToolCall, wire: BodyWire) -> bool {
    let Some(fields) = Fields::of_native(call.native.as_ref(), wire_name(wire)) else {
        return true;
    };
    match wire {
        BodyWire::OpenAiChat => !fields.contains("custom"),
        BodyWire::OpenAiResponses => fields.text("type").is_none_or(|kind| kind == "function_call"),
        BodyWire::Anthropic
        | BodyWire::Gemini
        | BodyWire::BedrockConverse
        | BodyWire::Cohere
        | BodyWire::Ollama => true,
    }
}

/// Returns whether arguments are a string on this wire. On the other wires, they are a JSON value,
/// and the writer of the body handles blank arguments.
fn has_text_arguments(wire: BodyWire) -> bool {
    matches!(wire, BodyWire::OpenAiChat | BodyWire::OpenAiResponses | BodyWire::Cohere)
}

/// Returns whether the part is reasoning in the message field `field`, or in a block whose `type`
/// is `field`.
fn is_reasoning_in(part: &Part, field: &str, wire: BodyWire) -> bool {
    let native = match part {
        Part::Reasoning(reasoning) => reasoning.native.as_ref(),
        Part::Native(native) => Some(native),
        _ => None,
    };
    let Some(fields) = Fields::of_native(native, wire_name(wire)) else { return false };
    match part {
        Part::Reasoning(_) => fields.contains(field) || fields.is_text("type", field),
        _ => fields.is_text("type", field),
    }
}

/// Returns the text of reasoning, or an empty text for any other part.
fn text_of(part: &Part) -> &str {
    match part {
        Part::Reasoning(reasoning) => &reasoning.text,
        _ => "",
    }
}

/// Creates reasoning in the message field `field`. On the wire Anthropic, creates a block whose
/// `type` is `field`.
fn placeholder(field: &str, text: &str, wire: BodyWire) -> Part {
    let mut fields = Fields::default();
    if wire == BodyWire::Anthropic {
        fields.set("type", raw(field));
        fields.set(field, raw(text));
        fields.set("signature", raw(""));
        return Part::Native(fields.into_native(wire_name(wire)));
    }
    fields.set(field, raw(&()));
    let mut reasoning = Reasoning::new(text);
    reasoning.native = Some(fields.into_native(wire_name(wire)));
    Part::Reasoning(reasoning)
}

/// Adds a signature to the first call of a client's tool, in the format of Gemini's endpoint for
/// Chat Completions. Returns whether a signature was added: the call may already have one.
fn sign_first_call(fitted_parts: &mut FittedParts, signature: &str) -> bool {
    let first = fitted_parts.parts.iter_mut().find_map(|part| match part {
        Part::ToolCall(call) if !call.provider_executed => Some(call),
        _ => None,
    });
    let Some(call) = first else { return false };
    let wire = wire_name(BodyWire::OpenAiChat);
    let mut fields = Fields::of_native(call.native.as_ref(), wire).unwrap_or_default();
    if fields.contains("extra_content") {
        return false;
    }
    if fields.is_empty() {
        fields.set("type", raw("function"));
        fields.set("function", raw(&json!({})));
    }
    fields.set("extra_content", raw(&json!({"google": {"thought_signature": signature}})));
    call.native = Some(fields.into_native(wire));
    fitted_parts.has_changed = true;
    true
}
