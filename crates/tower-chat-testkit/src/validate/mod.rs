//! Checks whether a provider would accept a conversation, before the request is sent.
//!
//! [`validate`] checks only the conversation in a request body of one wire. The function reports the
//! reasons for which the provider would refuse the body, such as a call without a result, a result
//! without a call, or a message between the two. Each [`Rule`] is one that a provider documents;
//! [`Wire::rules`] lists the rules with their sources. If real servers accept more than their documents
//! allow, the check accepts it too.
//!
//! ```
//! use serde_json::json;
//! use tower_chat_testkit::validate::{Rule, Wire, validate};
//!
//! let body = json!({"messages": [
//!     {"role": "user", "content": "Where is my order?"},
//!     {"role": "assistant", "tool_calls": [
//!         {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
//!     ]},
//!     {"role": "user", "content": "Well?"},
//! ]});
//! let invalid = validate(Wire::OpenAiChat, &body).unwrap_err();
//! let violation = invalid.first();
//! assert_eq!((violation.rule, violation.message), (Rule::CallsAnswered, 1));
//! assert_eq!(violation.call.as_ref().and_then(|call| call.id.as_deref()), Some("call_1"));
//! ```
//!
//! Some properties are not checked, because only the provider knows them: whether a model accepts a kind
//! of media, whether a signature or an encrypted item is genuine, and which models require a thought
//! signature.

mod anthropic;
mod bedrock_converse;
mod cohere;
mod gemini;
mod json;
mod ollama;
mod openai_chat;
mod openai_responses;
mod report;
mod rounds;
mod rule;
mod violation;
mod wire;

use serde_json::Value;

use self::report::Report;
pub use self::{
    rule::{Citation, Rule},
    violation::{CallInMessage, InvalidTranscript, Violation},
    wire::{UnknownWire, Wire},
};

/// Checks the conversation in a request body against the rules of its wire.
///
/// The body needs only its conversation: `messages`, `input` or `contents`. The time is linear in its
/// length, and no JSON causes a panic.
///
/// # Errors
///
/// All violations, in their order, if the provider would refuse the conversation.
pub fn validate(wire: Wire, body: &Value) -> Result<(), InvalidTranscript> {
    let mut report = Report::new(wire);
    match wire {
        Wire::OpenAiChat => openai_chat::check(body, &mut report),
        Wire::OpenAiResponses => openai_responses::check(body, &mut report),
        Wire::Anthropic => anthropic::check(body, &mut report),
        Wire::Gemini => gemini::check(body, &mut report),
        Wire::BedrockConverse => bedrock_converse::check(body, &mut report),
        Wire::Ollama => ollama::check(body, &mut report),
        Wire::Cohere => cohere::check(body, &mut report),
    }
    report.into_result()
}
