//! Would the provider accept this conversation? Checked before it is asked.
//!
//! [`validate`] looks at a request body of one wire, at its conversation alone, and says what its
//! provider would refuse it for: a call without its result, a result without its call, something
//! between the two, and the like. Each [`Rule`] is one that a provider states; [`Wire::rules`]
//! lists them with their sources. Where real servers are more lenient than their documents, what
//! they were seen to accept counts.
//!
//! ```
//! use serde_json::json;
//! use tower_chat_wire::validate::{Rule, Wire, validate};
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
//! What only the provider can know is not checked: whether a model takes a kind of media, whether
//! a signature or an encrypted item is genuine, which models demand a thought signature.

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
/// The body needs only its conversation: `messages`, `input` or `contents`. Linear in its length;
/// any JSON is looked at without a panic.
///
/// # Errors
///
/// If the provider would refuse the conversation: everything that is wrong, first to last.
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
