//! The conversation of Anthropic Messages (`POST /v1/messages`), at Anthropic, in Bedrock's
//! `InvokeModel` and in Vertex AI.
//!
//! [`parse_body`] reads `system` and `messages` of a request body, [`parse_answer`] the body of an
//! answer, [`render_body`] writes the two fields. What the vocabulary has a field for stands in
//! that field, and only there; the rest is kept in [`Native`](tower_chat_core::Native) items of
//! the wire [`WIRE`], so that a body the service accepts is written as it was read:
//!
//! - of a text, a call, a result, media, a `thinking` block: its `native` field, the block without
//!   what the part holds itself (`{"type":"thinking","signature":"…"}`). An ordinary block has
//!   none, but for a text that is alone in a list, where it tells the list from a bare text;
//! - a `redacted_thinking` block: the `native` field of a [`Reasoning`](tower_chat_core::Reasoning)
//!   without text, whole;
//! - a block of an unknown type, or where its type does not belong: a [`Part::Native`], whole;
//! - of a message with more than role and content, of one that follows another of its role, and
//!   of a `system` message among the others: a [`Part::Native`] before its other parts, the
//!   message object without its content. Such a message is never joined to the one before it. Of
//!   assistant messages in a row, which are one [`Message`](tower_chat_core::Message), it keeps
//!   where each begins.
//!
//! A user message of results alone has the role [`Tool`](tower_chat_core::Role::Tool). Tools that
//! the service runs itself (`server_tool_use`, `mcp_tool_use`) are
//! [provider-executed](tower_chat_core::ToolCall::provider_executed) calls, and their results are
//! results in the same message; one whose call stands elsewhere stays whole.
//!
//! # What becomes of other messages
//!
//! Writing prefers the message's own fields, so that a change to them shows, and makes a
//! conversation that was recorded elsewhere one that the service takes; the same messages always
//! give the same body:
//!
//! - system messages go to `system`, in their order;
//! - consecutive messages of one role are joined, tool messages with the user's: results come
//!   first, an assistant's text before its calls;
//! - the ids of calls that are missing, occur twice in a round, or have characters that are not
//!   taken, are replaced, on the call and on its result;
//! - arguments that are no JSON object become one: none at all and `null` the empty one, any
//!   other text the field `arguments` of one;
//! - left out are reasoning without a signature, or with nothing after it; blank texts; messages
//!   of which nothing is left; approvals and errors; native items of other wires; calls that
//!   another provider ran, and their results; media other than images and PDF documents, or
//!   outside of a user's message or a result.
//!
//! Not mended: calls without results, results without calls. That is the work of replay. And with
//! `thinking` enabled the service wants the round it is asked to go on with to begin with a
//! thinking block: go on without it where that round was recorded elsewhere.
//!
//! ```
//! use tower_chat_core::{Message, ToolCall, ToolResult};
//! use tower_chat_wire::anthropic::{parse_body, render_body};
//! let messages = [
//!     Message::system("Be brief."),
//!     Message::user("Is it cold?"),
//!     Message::tool_calls([ToolCall::new("functions.weather:0", "weather", "")]),
//!     Message::tool_results([ToolResult::new("functions.weather:0", "12 degrees")]),
//! ];
//! let body = serde_json::to_string(&render_body(&messages))?;
//! assert_eq!(
//!     body,
//!     concat!(
//!         r#"{"system":"Be brief.","messages":["#,
//!         r#"{"role":"user","content":"Is it cold?"},"#,
//!         r#"{"role":"assistant","content":[{"type":"tool_use","id":"functions_weather_0","#,
//!         r#""input":{},"name":"weather"}]},"#,
//!         r#"{"role":"user","content":[{"type":"tool_result","content":"12 degrees","#,
//!         r#""tool_use_id":"functions_weather_0"}]}]}"#,
//!     )
//! );
//! let read = parse_body(&body)?;
//! assert_eq!(read[3].results().next().map(|result| result.text()).as_deref(), Some("12 degrees"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Part::Native`]: tower_chat_core::Part::Native

mod accumulator;
mod answer;
mod block_order;
mod call;
mod container;
mod content;
mod continuation;
mod envelope;
mod media;
mod message;
mod most_tokens;
mod render;
pub(crate) mod request;
mod result;
mod thinking;

pub use self::{
    continuation::goes_on_without_thinking,
    message::{parse_answer, parse_body, parse_message, parse_messages, parse_system},
    render::{Body, render_body},
    request::{RequestForm, render_request},
};

pub(crate) use self::{
    accumulator::AnthropicAccumulator,
    answer::{REASONS, parse as parse_whole_answer, usage},
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "anthropic";
