//! Reads and writes the conversations of Anthropic Messages. Anthropic's API (`POST /v1/messages`),
//! Bedrock's `InvokeModel` and Vertex AI use this format.
//!
//! [`parse_body`] reads `system` and `messages` of a request body, [`parse_answer`] reads the body
//! of an answer, and [`render_body`] writes the fields `system` and `messages` of a request body.
//! If a [`Message`](tower_chat_core::Message) or one of its parts has a field for a value, the
//! value is stored only in this field. All other values are stored as JSON, in
//! [`Native`](tower_chat_core::Native) items of this format (the wire [`WIRE`]). A body that the
//! service accepts is therefore written as it was read. The reader converts a body by these rules:
//!
//! - Texts, calls, results, media and `thinking` blocks become parts. The `native` field of a part
//!   contains the other fields of the block, for which the part has no field
//!   (`{"type":"thinking","signature":"…"}`). If the block has no other fields, the part has no
//!   native item. A text that is the only block of a list is an exception: its native item shows
//!   that the content was a list, and not a string.
//! - A `redacted_thinking` block becomes a [`Reasoning`](tower_chat_core::Reasoning) without text,
//!   whose `native` field contains the whole block.
//! - A block of an unknown type, or of a type that is not allowed at its position, becomes a
//!   [`Part::Native`] with the whole block.
//! - An envelope is a [`Part::Native`] that contains a message object without its content, and that
//!   precedes the parts of this message object. The writer never joins a message that has an
//!   envelope with the previous message. A message object is read with an envelope if it has fields
//!   other than role and content, follows another message of the same role, or is a `system`
//!   message in the list `messages`.
//! - Consecutive assistant messages become one [`Message`](tower_chat_core::Message), in which an
//!   envelope marks the beginning of the second and of each later message object.
//!
//! A user message that contains only results gets the role [`Tool`](tower_chat_core::Role::Tool).
//! Calls of tools that the service runs (`server_tool_use`, `mcp_tool_use`) become
//! [provider-executed](tower_chat_core::ToolCall::provider_executed) calls, and their results
//! become results in the same message. A result of such a call becomes a native part if it is in
//! another message than the call.
//!
//! # Messages of other providers
//!
//! The fields of a message take precedence over its native items, so that changes by an application
//! are written. The writer converts a conversation of another provider to a form that the service
//! accepts. The same messages always result in the same body:
//!
//! - system messages are written to `system`, in their order;
//! - consecutive messages of the same role are joined, and so are consecutive user and tool
//!   messages; in a user message, results are written before other blocks; in an assistant message,
//!   texts are written before calls;
//! - a call id is replaced, in the call and in its result, if it is missing, or contains a
//!   character that the service does not accept, or is also the id of an earlier call in the same
//!   group of consecutive assistant messages;
//! - arguments that are not a JSON object are converted to an object: empty arguments and `null` to
//!   an empty object, and any other text to an object with the field `arguments`;
//! - the following parts are not written, and neither is a message that has no other parts:
//!   - reasoning of other wires, reasoning of Claude without a signature, and reasoning at the end
//!     of consecutive assistant messages;
//!   - native items of other wires, and provider-executed calls of other wires with their results;
//!   - media outside of user messages and results, and media other than images, PDF documents and
//!     files that the service stores;
//!   - blank texts, approvals and errors.
//!
//! Calls without results and results without calls are written unchanged. The persistence layers of
//! `tower-chat-layers` remove these calls and results before a request is sent.
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
