//! The conversation in a request of Gemini's `generateContent`: `contents` and `systemInstruction`,
//! in the Gemini API and in Vertex AI.
//!
//! Reading a conversation and writing it again gives equal JSON values, in both spellings of the
//! field names (`functionCall` and `function_call`). One content is one message:
//!
//! - `systemInstruction` is a system message before all others;
//! - a content of the model is an assistant message, one of function responses alone a tool
//!   message, any other a user message;
//! - a part with `thought: true` is [`Reasoning`](tower_chat_core::Reasoning);
//! - the arguments of a function call are the text of the JSON object;
//! - the content of a function response is the text under its only key (`output`, `result`,
//!   `error` and a few more), else the text of the whole JSON object. It is an error if `error` is
//!   its only key.
//!
//! What the vocabulary has no field for is kept in [`Native`](tower_chat_core::Native) items of the
//! wire [`WIRE`]: thought signatures, ids of an odd form, spellings, unknown fields. The native of
//! a part is the part without the values that the message holds itself; a `null` stands in the
//! place of a value that came in an unusual form. A part of another kind, such as `executableCode`
//! and `codeExecutionResult`, is a [`Part::Native`] in its place, whole. A content with an unusual
//! role or more fields has a [`Part::Native`] before its parts: the content, with `null` for its
//! parts. An ordinary message has no native item. Writing prefers the message's own fields, so
//! that a change to them shows.
//!
//! Messages that never were Gemini's are written as the wire can say them. All system messages
//! become the system instruction. Results are paired with the calls before them, and take id and
//! name from there; they come first in their turn, and those of tool messages in a row are one
//! content. A text result is written as `{"output": …}`, that of an error as `{"error": …}`; media
//! in a result follow the results. Arguments that are no JSON object become
//! `{"arguments": "the text"}`. A conversation that begins with a call of the model gets a user's
//! empty text before it. Left out are reasoning of other wires, approvals, errors, authors, calls
//! that a provider ran itself and their results, file ids of other providers, native items of other
//! wires, and contents of which nothing is left. Nothing of this depends on anything but the
//! messages.
//!
//! # Thought signatures
//!
//! A signature goes back in the part in which it came, as Gemini's document
//! [Thought signatures](https://ai.google.dev/gemini-api/docs/thought-signatures) demands. Of
//! parallel calls only the first carries one; if that call leaves the history, its signature leaves
//! with it and is not moved to the next call. Gemini 3 refuses a step of the current turn whose
//! first call has no signature; [`Unsigned::StandIn`] puts there the value that the same document
//! gives for calls that Gemini did not make.
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
    answer::{REASONS, parse as parse_whole_answer, usage},
    render::STAND_IN,
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "gemini";
