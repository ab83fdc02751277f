//! Checks, without sending a request, whether a provider would accept a conversation.
//!
//! [`validate`] checks the conversation in a request body, and no other fields of the body. The
//! function reports the reasons for which the provider would refuse the conversation, such as a
//! call without a result, a result without a call, or a message between a call and its result. The
//! source of each [`Rule`] is the documentation of a provider, or an error of its server.
//! [`Wire::rules`] lists the rules of a wire (the JSON format of a provider) with their sources. If
//! a server accepts conversations that its documentation forbids, [`validate`] accepts them too.
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
//! Properties that only the provider can check are ignored: whether a model accepts a kind of
//! media, whether a signature or an encrypted item is genuine, and whether a model requires thought
//! signatures.

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
/// The body may consist of its conversation only: the field `messages`, `input` or `contents`. The
/// running time is linear in the length of the conversation. The function does not panic for any
/// JSON.
///
/// # Errors
///
/// Fails with all violations, in the order in which they were found, if the provider would refuse
/// the conversation.
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
