//! Reads and writes the conversations of Gemini's `generateContent`: the fields `contents` and
//! `systemInstruction`, in the Gemini API and in Vertex AI.
//!
//! If a conversation is read and written again, the JSON values are equal, in both spellings of the
//! field names (`functionCall` and `function_call`). One content becomes one message:
//!
//! - `systemInstruction` becomes a system message before all others;
//! - a content of the model becomes an assistant message, a content with only function responses a tool
//!   message, and any other content a user message;
//! - a part with `thought: true` becomes [`Reasoning`](tower_chat_core::Reasoning);
//! - the arguments of a function call are the text of the JSON object;
//! - the content of a function response is the text in its only field (`output`, `result`, `error` and a
//!   few more). A response with more fields becomes the text of the whole JSON object. The result is an
//!   error if `error` is the only field.
//!
//! All other data are stored in [`Native`](tower_chat_core::Native) items of the wire [`WIRE`]: thought
//! signatures, ids of an unusual form, spellings, unknown fields. The native item of a part is the part
//! without the values that are in the message; a `null` marks a value that had an unusual form. A part
//! of another kind, such as `executableCode` and `codeExecutionResult`, is a [`Part::Native`] at its
//! position, as a whole. A content with an unusual role or with more fields has a [`Part::Native`]
//! before its parts: the content with `null` for its parts. A message without such data has no native
//! item. The fields of a message take precedence over its native items, so that changes of an
//! application are written.
//!
//! Messages of other wires are written in the closest form of this wire. All system messages become the
//! system instruction. Results are paired with the calls before them and get the id and the name of the call.
//! Results are first in their turn, and the results of consecutive tool messages are one content. A text
//! result is written as `{"output": …}`, and that of an error as `{"error": …}`; media in a result are
//! written after the results. Arguments that are not a JSON object become `{"arguments": "the text"}`. If a
//! conversation begins with a call of the model, an empty text of the user is written before it. The
//! following is not written: reasoning of other wires, approvals, errors, authors, provider-executed calls and
//! their results, file ids of other providers, native items of other wires, and contents that are then empty.
//! The result depends only on the messages.
//!
//! # Thought signatures
//!
//! A signature is sent back in the part in which it arrived, as Gemini's document [Thought
//! signatures](https://ai.google.dev/gemini-api/docs/thought-signatures) requires. Of parallel calls only the
//! first has a signature. If that call is removed from the history, its signature is removed too, and is not
//! moved to the next call. Gemini 3 refuses a step of the current turn if the first call of the step has no
//! signature. [`Unsigned::StandIn`] adds the value that the same document defines for calls that Gemini did
//! not make.
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
