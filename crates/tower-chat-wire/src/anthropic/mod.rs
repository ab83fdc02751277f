//! Reads and writes the conversations of Anthropic Messages (`POST /v1/messages`), at Anthropic, in
//! Bedrock's `InvokeModel` and in Vertex AI.
//!
//! [`parse_body`] reads `system` and `messages` of a request body, [`parse_answer`] reads the body of an
//! answer, and [`render_body`] writes the two fields of a request. Data for which
//! [`Message`](tower_chat_core::Message) and its parts have a field are stored in that field only. All
//! other data are stored in [`Native`](tower_chat_core::Native) items of the wire [`WIRE`], so that a
//! body that the service accepts is written as it was read:
//!
//! - A text, a call, a result, media and a `thinking` block have a `native` field: the block without the
//!   fields of the part (`{"type":"thinking","signature":"…"}`). A part that was read from a block
//!   without other fields has no native item, with one exception: a text that is alone in a list has
//!   one, to distinguish the list from a string.
//! - A `redacted_thinking` block is the `native` field of a [`Reasoning`](tower_chat_core::Reasoning)
//!   without text, as a whole.
//! - A block of an unknown type, or of a type that is not allowed at its position, is a
//!   [`Part::Native`], as a whole.
//! - Some messages begin with a [`Part::Native`] with the message object without its content: a message with
//!   fields other than role and content, a message after another one of its role, and a `system` message in
//!   the list `messages`. The writer never joins these messages with the previous one. Consecutive assistant
//!   messages are one [`Message`](tower_chat_core::Message), in which a native part marks the beginning of
//!   each of them.
//!
//! A user message with only results has the role [`Tool`](tower_chat_core::Role::Tool). Calls of tools
//! that the service runs itself (`server_tool_use`, `mcp_tool_use`) are
//! [provider-executed](tower_chat_core::ToolCall::provider_executed) calls, and their results are
//! results in the same message. A result whose call is in another message is a native part.
//!
//! # Messages of other providers
//!
//! The fields of a message take precedence over its native items, so that changes of an application are
//! written. A conversation of another provider is written in a form that the service accepts. The same
//! messages always result in the same body:
//!
//! - system messages are written to `system`, in their order;
//! - consecutive messages of one role are joined, and tool messages are joined with user messages;
//!   results are written first, and an assistant's texts before its calls;
//! - a call id is replaced, in the call and in its result, if it is missing, occurs twice in a round, or has
//!   a character that the service does not accept;
//! - arguments that are not a JSON object are written as one: missing arguments and `null` as an empty
//!   object, any other text as the field `arguments` of an object;
//! - the following is not written: reasoning of other wires; reasoning of Claude without a signature; reasoning
//!   at the end of a turn; blank texts; messages that are then empty; approvals and errors; native items of
//!   other wires; provider-executed calls of other wires, and their results; media outside of user messages
//!   and results; media other than images, PDF documents and files of the service.
//!
//! Calls without results and results without calls are written unchanged; replay removes them.
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
mod envelope;
mod max_tokens;
mod media;
mod message;
mod render;
pub(crate) mod request;
mod result;
mod thinking;

pub(crate) use self::thinking::is_sent;
pub use self::{
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
