//! Reads and writes the conversations of `generateContent` in the Gemini API and in Vertex AI: the
//! fields `contents` and `systemInstruction` of a request.
//!
//! If a conversation is read and written again, the written JSON is equal to the JSON that was
//! read, for both spellings of field names (`functionCall` and `function_call`). Each content
//! becomes one message:
//!
//! - `systemInstruction` becomes a system message before all other messages;
//! - a content of the model becomes an assistant message, a content that contains only function
//!   responses becomes a tool message, and any other content becomes a user message;
//! - a part with `thought: true` becomes [`Reasoning`](tower_chat_core::Reasoning);
//! - the arguments of a function call become the text of their JSON object;
//! - a function response with a single text field (`output`, `result`, `error` or a few other
//!   names) becomes a result with this text, and any other response becomes a result with the text
//!   of the whole JSON object; the result is an error if `error` is the only field.
//!
//! All other data are stored as JSON, in [`Native`](tower_chat_core::Native) items of this format
//! (the wire [`WIRE`]): thought signatures, ids of an unusual form, spellings, unknown fields.
//!
//! - The native item of a part contains the JSON of the part without the values that the part has
//!   in its own fields. `null` replaces a value that had an unusual form.
//! - A part of an unknown kind, such as `executableCode` or `codeExecutionResult`, becomes a
//!   [`Part::Native`] with the whole part, at its position.
//! - If a content has an unusual role or more fields, a [`Part::Native`] before its parts contains
//!   the content, in which `null` replaces the parts.
//!
//! A message without such data has no native item. The fields of a message take precedence over its
//! native items, so that changes by an application are written.
//!
//! Messages that were read from the JSON of another provider (another wire) are written in the
//! closest form of this wire. The written JSON depends only on the messages.
//!
//! - All system messages become the system instruction.
//! - Arguments that are not a JSON object become `{"arguments": "the text"}`.
//! - Each result is written with the id and the name of the call that it answers: a text as
//!   `{"output": …}`, and an error as `{"error": …}`. Media in results are written after all
//!   results.
//! - Between two contents of the model, results are written before all other parts, and the results
//!   of consecutive tool messages are joined into one content.
//! - If a conversation begins with a call of the model, an empty text of the user is written before
//!   this call.
//! - Not written are authors, approvals, errors, reasoning and native items of other wires, file
//!   ids of other providers, and calls of tools that a provider runs itself, with their results. A
//!   message that has no other parts is not written either.
//!
//! # Thought signatures
//!
//! A thought signature is Google's encrypted record of the model's reasoning. Gemini's document
//! [Thought signatures](https://ai.google.dev/gemini-api/docs/thought-signatures) requires that a
//! signature is sent back in the part in which it was received. If the model makes several calls at
//! once, only the first call has a signature. If this call is removed from the history, the
//! signature is removed too, and is not moved to the next call. Gemini 3 refuses a request if the
//! first call of an answer after the last user message has no signature. [`Unsigned::StandIn`] adds
//! the value that the same document defines for calls that Gemini did not make.
//!
//! ```
//! use serde_json::{Value, json};
//! use tower_chat_wire::gemini::{Unsigned, parse_body, render_messages};
//! let body = json!({"contents": [
//!     {"role": "user", "parts": [{"text": "How warm is it in Paris?"}]},
//!     {"role": "model", "parts": [
//!         {"functionCall": {"name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "c2k="},
//!     ]},
//!     {"role": "user", "parts": [
//!         {"functionResponse": {"name": "weather", "response": {"output": "12 degrees"}}},
//!     ]},
//! ]});
//! let messages = parse_body(&body.to_string())?;
//! assert_eq!(messages[1].calls().next().map(|call| call.name.as_str()), Some("weather"));
//! assert_eq!(messages[2].results().next().map(|result| result.text()), Some("12 degrees".to_owned()));
//! let written = render_messages(&messages, Unsigned::AsRecorded);
//! assert_eq!(serde_json::to_value(&written.contents)?, body["contents"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Part::Native`]: tower_chat_core::Part::Native

mod accumulator;
mod answer;
mod body;
mod call;
mod content;
mod media;
mod part;
mod render;
pub(crate) mod request;
mod result;
mod streamed_call;
mod turn;

pub use self::{
    body::{parse_answer, parse_body, parse_contents},
    render::{RequestContents, Unsigned, render_messages},
    request::render_request,
};

pub(crate) use self::{
    accumulator::GeminiAccumulator,
    answer::{REASONS, parse_whole as parse_whole_answer, usage},
    render::STAND_IN,
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "gemini";
