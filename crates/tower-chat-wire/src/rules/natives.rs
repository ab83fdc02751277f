//! Decides which native items are sent to a service.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. The issuer of a native item is the service that created the item. A provider-executed call
//! is a call of a tool that the provider runs itself.

use tower_chat_core::{Native, Reasoning, ToolCall};

use super::service_rules::ServiceRules;
use crate::{
    anthropic, bedrock_converse, body::BodyWire, cohere, fields::Fields, gemini, ollama,
    openai_chat, openai_responses,
};

/// Returns the name of the wire in native items.
pub(crate) fn wire_name(wire: BodyWire) -> &'static str {
    match wire {
        BodyWire::OpenAiChat => openai_chat::WIRE,
        BodyWire::OpenAiResponses => openai_responses::WIRE,
        BodyWire::Anthropic => anthropic::WIRE,
        BodyWire::Gemini => gemini::WIRE,
        BodyWire::BedrockConverse => bedrock_converse::WIRE,
        BodyWire::Cohere => cohere::WIRE,
        BodyWire::Ollama => ollama::WIRE,
    }
}

/// Returns whether another service with the same wire issued the item. Returns `false` for an item
/// of another wire, which the writer of the body omits.
pub(super) fn is_foreign(native: Option<&Native>, rules: &ServiceRules) -> bool {
    native.is_some_and(|native| {
        &*native.wire == wire_name(rules.wire)
            && native.issuer.as_ref().is_some_and(|issuer| *issuer != rules.issuer)
    })
}

/// Returns whether the service refuses the fields in which this reasoning was received.
pub(super) fn is_in_refused_field(reasoning: &Reasoning, rules: &ServiceRules) -> bool {
    let Some(accepted) = rules.reasoning_fields else { return false };
    let fields = Fields::of_native(reasoning.native.as_ref(), wire_name(rules.wire));
    fields.is_some_and(|fields| !accepted.iter().any(|name| fields.contains(name)))
}

/// Returns whether a provider-executed call was made by another service with the same wire. The id
/// of such a call lacks the prefix that this service's ids have.
pub(super) fn has_id_of_other_service(call: &ToolCall, rules: &ServiceRules) -> bool {
    let fields = Fields::of_native(call.native.as_ref(), wire_name(rules.wire));
    let kind = fields.and_then(|fields| fields.text("type")).unwrap_or_default();
    let own = rules.hosted_ids.iter().find(|(own, _)| *own == kind);
    own.is_some_and(|(_, prefix)| !is_hosted_id(call.id.as_deref(), prefix))
}

/// Returns whether a native block is the result of a provider-executed call, such as a
/// `web_search_tool_result`, and the id of this call lacks the prefix of this service's ids.
pub(super) fn is_result_of_other_service(native: &Native, rules: &ServiceRules) -> bool {
    if rules.hosted_ids.is_empty() {
        return false;
    }
    let Some(fields) = Fields::of_native(Some(native), wire_name(rules.wire)) else { return false };
    let kind = fields.text("type").unwrap_or_default();
    if !kind.ends_with("_tool_result") {
        return false;
    }
    let id = fields.text("tool_use_id");
    !rules.hosted_ids.iter().any(|(_, prefix)| is_hosted_id(id.as_deref(), prefix))
}

fn is_hosted_id(id: Option<&str>, prefix: &str) -> bool {
    let rest = id.and_then(|id| id.strip_prefix(prefix));
    rest.is_some_and(|rest| {
        !rest.is_empty() && rest.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    })
}
