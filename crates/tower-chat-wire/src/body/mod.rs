//! Reads and writes whole bodies: of requests, with their options, and of answers, with their
//! finish reason, usage and metadata. A wire is the JSON format of one API.
//!
//! A [`BodyWire`] reads and writes the bodies of one wire. A field of a request becomes the option
//! of [`ChatOptions`](tower_chat_core::ChatOptions) with the same meaning. All other fields of a
//! request become [`extra`](tower_chat_core::ChatOptions::extra) options, which are written to the
//! body again. `null` fields are ignored. Fields of an answer that [`Finish`] does not have become
//! its [`metadata`](Finish::metadata).
//!
//! ```
//! use tower_chat_wire::body::BodyWire;
//! let body = r#"{"messages":[{"role":"user","content":"hi"}],"model":"m","seed":7,"top_p":0.5}"#;
//! let request = BodyWire::OpenAiChat.parse_request_json(body)?;
//! assert_eq!(request.options.top_p, Some(0.5));
//! assert_eq!(request.options.extra["seed"], 7);
//! assert_eq!(BodyWire::OpenAiChat.render_request_json(&request)?.get(), body);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anthropic;
mod context;
mod error;
mod fields;
pub(crate) mod gemini;
mod openai_chat;
mod openai_responses;
mod tool;

use std::{mem, sync::Arc};

use serde_json::Value;
use tower_chat_core::{
    Answer, ChatRequest, ExactNumbers, Finish, Message, RawJson, ToolDefinition,
};

pub use self::{context::AnswerContext, error::BodyError};
pub(crate) use self::{
    fields::{Fields, conversation_field, merge, object_json, set},
    tool::ToolForm,
};
use crate::{
    AnswerError, bedrock_converse, cohere,
    fields::raw,
    object::{Object, to_value},
    ollama,
    openai_responses::HistoryLocation,
    refusal,
    refusal::CodeFields,
    stream::ResponseAccumulator,
};

/// An API whose bodies can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyWire {
    /// OpenAI Chat Completions and compatible APIs. The token limit is written as
    /// `max_completion_tokens`; `max_tokens` is read too.
    OpenAiChat,
    /// OpenAI Responses. The service id, under which the service stores the history, is written as
    /// `previous_response_id` or `conversation`.
    OpenAiResponses,
    /// Anthropic Messages. The API requires `max_tokens`. For a request without a token limit, 4096
    /// is written.
    Anthropic,
    /// Gemini's `generateContent`, whose body does not name the model.
    Gemini,
    /// Bedrock's Converse, whose body does not name the model.
    BedrockConverse,
    /// Cohere's chat API, version 2.
    Cohere,
    /// Ollama's native chat API, `/api/chat`. The answer is streamed unless the request sets
    /// `stream` to `false`.
    Ollama,
}

impl BodyWire {
    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// [`BodyError`], if the body is not a request of this wire.
    pub fn parse_request(self, body: Value) -> Result<ChatRequest, BodyError> {
        self.parse_request_json(&body.to_string())
    }

    /// Reads the body of a request from JSON text. Unlike in
    /// [`parse_request`](Self::parse_request), integers of any size keep all their digits.
    ///
    /// # Errors
    ///
    /// [`BodyError`], if the body is not a request of this wire.
    pub fn parse_request_json(self, body: &str) -> Result<ChatRequest, BodyError> {
        let mut request = match self {
            Self::OpenAiChat => openai_chat::parse_request(body)?,
            Self::OpenAiResponses => openai_responses::parse_request(body)?,
            Self::Anthropic => anthropic::parse_request(body)?,
            Self::Gemini => gemini::parse_request(body)?,
            Self::BedrockConverse => bedrock_converse::parse_request(body)?,
            Self::Cohere => cohere::parse_request(body)?,
            Self::Ollama => ollama::parse_request(body)?,
        };
        let numbers = ExactNumbers::of_fields(body, |name| !CONVERSATION.contains(&name));
        if !numbers.is_empty() {
            let options = Arc::make_mut(&mut request.options);
            *options = mem::take(options).with_exact_numbers(numbers);
        }
        Ok(request)
    }

    /// Writes the body of a request, including its history.
    ///
    /// # Errors
    ///
    /// [`BodyError::Unsupported`], if the wire cannot express the request, such as a conversation
    /// that the service stores, or a background answer. [`BodyError::Field`], if the wire requires
    /// a model and the request names no model. [`BodyError::Sentinel`], if the history owner of the
    /// request is [`Local`](tower_chat_core::HistoryOwner::Local): such a request contains only new
    /// messages, and no layer has added the history.
    pub fn render_request(self, request: &ChatRequest) -> Result<Value, BodyError> {
        Ok(to_value(&self.render_request_json(request)?))
    }

    /// Writes the body of a request as JSON text, in which numbers in messages keep all digits.
    ///
    /// # Errors
    ///
    /// The errors of [`render_request`](Self::render_request).
    pub fn render_request_json(self, request: &ChatRequest) -> Result<RawJson, BodyError> {
        if request.options.is_background() {
            return Err(BodyError::Unsupported { what: "background answers" });
        }
        let service_id = request.service_id()?;
        if service_id.is_some() && self != Self::OpenAiResponses {
            return Err(BodyError::Unsupported { what: "conversations that the service stores" });
        }
        let body = match self {
            Self::OpenAiChat => crate::openai_chat::request::render(request, None),
            Self::OpenAiResponses => {
                let location = service_id.cloned().map(HistoryLocation::of_service_id);
                crate::openai_responses::request::render(
                    request,
                    &location.unwrap_or_default(),
                    None,
                )
            }
            Self::Anthropic => crate::anthropic::request::render(request, None),
            Self::Gemini => crate::gemini::request::render(request, None),
            Self::BedrockConverse => bedrock_converse::render_as_is(request)?,
            Self::Cohere => cohere::render_as_is(request, model(request)?),
            Self::Ollama => ollama::render_as_is(request, model(request)?)?,
        };
        Ok(raw(&body))
    }

    /// Writes the definition of a tool as an entry of the list of tools. Returns `None` for a tool
    /// that another provider runs.
    pub fn render_tool(self, definition: &ToolDefinition) -> Option<Value> {
        match self {
            Self::OpenAiChat => openai_chat::TOOL.render(definition),
            Self::OpenAiResponses => openai_responses::TOOL.render(definition),
            Self::Anthropic => anthropic::render_tool(definition),
            Self::Gemini => {
                gemini::render_tools(std::slice::from_ref(definition), gemini::FUNCTION.parameters)
                    .pop()
            }
            Self::BedrockConverse => bedrock_converse::render_tool(definition),
            Self::Cohere => cohere::TOOL.render(definition),
            Self::Ollama => ollama::TOOL.render(definition),
        }
    }

    /// Reads the body of a whole answer, without information about the request (see
    /// [`parse_answer_to`](Self::parse_answer_to)). The arguments of calls have the same bytes as
    /// in the body, and numbers in unknown fields have the same digits.
    ///
    /// # Errors
    ///
    /// [`AnswerError`], if the body is not an answer, or reports an error.
    ///
    /// ```
    /// use tower_chat_wire::body::BodyWire;
    /// let answer = BodyWire::Ollama.parse_answer(r#"{"message": {"content": "It is."}}"#)?;
    /// assert_eq!(answer.text(), "It is.");
    /// # Ok::<(), tower_chat_wire::AnswerError>(())
    /// ```
    pub fn parse_answer(self, body: &str) -> Result<Answer, AnswerError> {
        self.parse_answer_to(body, &AnswerContext::default())
    }

    /// Reads the body of a whole answer, with information about its request.
    ///
    /// # Errors
    ///
    /// The errors of [`parse_answer`](Self::parse_answer).
    pub fn parse_answer_to(
        self,
        body: &str,
        context: &AnswerContext,
    ) -> Result<Answer, AnswerError> {
        let mut answer = match self {
            Self::OpenAiChat => crate::openai_chat::parse_answer(body)?,
            Self::OpenAiResponses => crate::openai_responses::parse_whole_answer(body, context)?,
            Self::Anthropic => crate::anthropic::parse_whole_answer(body)?,
            Self::Gemini => crate::gemini::parse_whole_answer(body)?,
            Self::BedrockConverse => bedrock_converse::parse_answer(body)?,
            Self::Cohere => cohere::parse_answer(body)?,
            Self::Ollama => ollama::parse_answer(body)?,
        };
        *answer.finish = mem::take(&mut *answer.finish).with_exact_numbers(ExactNumbers::of(body));
        context.complete(&mut answer);
        Ok(answer)
    }

    /// Creates the accumulator for the frames of one streamed answer, without information about the
    /// request (see [`accumulator_to`](Self::accumulator_to)).
    pub fn accumulator(self) -> Box<dyn ResponseAccumulator> {
        self.accumulator_to(AnswerContext::default())
    }

    /// Creates the accumulator for the frames of one streamed answer, with information about its
    /// request.
    pub fn accumulator_to(self, context: AnswerContext) -> Box<dyn ResponseAccumulator> {
        let completing = context.clone();
        let accumulator: Box<dyn ResponseAccumulator> = match self {
            Self::OpenAiChat => Box::<crate::openai_chat::ChatAccumulator>::default(),
            Self::OpenAiResponses => {
                Box::new(crate::openai_responses::ResponsesAccumulator::new(context))
            }
            Self::Anthropic => Box::<crate::anthropic::AnthropicAccumulator>::default(),
            Self::Gemini => Box::<crate::gemini::GeminiAccumulator>::default(),
            Self::BedrockConverse => Box::<bedrock_converse::BedrockAccumulator>::default(),
            Self::Cohere => Box::<cohere::CohereAccumulator>::default(),
            Self::Ollama => Box::<ollama::OllamaAccumulator>::default(),
        };
        completing.wrap(accumulator)
    }

    /// Reads the body of a response whose HTTP status is not 2xx. The result is always
    /// [`AnswerError::Refused`], regardless of the content of the body.
    ///
    /// ```
    /// use tower_chat_wire::body::BodyWire;
    /// let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    /// let error = BodyWire::Anthropic.parse_error(529, body);
    /// assert_eq!((error.status(), error.code()), (Some(529), Some("overloaded_error")));
    /// assert!(error.is_retryable());
    /// ```
    pub fn parse_error(self, status: u16, body: &str) -> AnswerError {
        let fields = match self {
            Self::OpenAiChat | Self::OpenAiResponses => CodeFields::OpenAi,
            Self::Anthropic
            | Self::Gemini
            | Self::BedrockConverse
            | Self::Cohere
            | Self::Ollama => CodeFields::Others,
        };
        refusal::parse(Some(status), body, fields)
    }

    /// Writes the body of a whole answer with one message. The fields `id` and `created` are
    /// written only if [`Finish::metadata`] contains them.
    pub fn render_answer(self, message: &Message, finish: &Finish) -> Value {
        to_value(&self.render_answer_json(message, finish))
    }

    /// Writes the body of a whole answer as JSON text, in which numbers of the message keep all
    /// digits.
    pub fn render_answer_json(self, message: &Message, finish: &Finish) -> RawJson {
        let body = match self {
            Self::OpenAiChat => openai_chat::render_answer(message, finish),
            Self::OpenAiResponses => openai_responses::render_answer(message, finish),
            Self::Anthropic => anthropic::render_answer(message, finish),
            Self::Gemini => gemini::render_answer(message, finish),
            Self::BedrockConverse => bedrock_converse::render_answer(message, finish),
            Self::Cohere => cohere::render_answer(message, finish),
            Self::Ollama => ollama::render_answer(message, finish),
        };
        let numbers = finish.exact_numbers();
        if numbers.is_empty() {
            return body;
        }
        let Ok(mut fields) = body.parse::<Object>() else { return body };
        numbers.restore(&mut fields);
        raw(&fields)
    }
}

/// The fields of request bodies that contain messages. [`ExactNumbers`] need not preserve the
/// numbers in them, because messages store numbers as text.
const CONVERSATION: [&str; 3] = ["contents", "input", "messages"];

/// Parses JSON text that this crate has written. Returns `null` if the text cannot be parsed.
fn value(json: &RawJson) -> Value {
    json.parse().unwrap_or(Value::Null)
}

/// Returns the model of a request, for a wire that requires one.
fn model(request: &ChatRequest) -> Result<&str, BodyError> {
    let expected = "set in the request";
    let unnamed = BodyError::Field { field: "model", expected };
    request.options.model.as_deref().ok_or(unnamed)
}

fn as_json<T: serde::Serialize + ?Sized>(value: &T) -> RawJson {
    raw(value)
}
