//! What an answer says besides its message: how it ended, what it cost, and errors.

use std::time::Duration;

use http::HeaderMap;
use serde_json::{Map, Value};
use tower_chat_core::{Finish, FinishReason, Usage};
use tower_chat_wire::stream::named_status;

use crate::{
    OpenAiError,
    object::{Object, take, take_text, to_value},
};

/// The end of an answer, from the fields of it but `choices`, and of its choice but the message.
pub(crate) fn finish(mut fields: Object, mut choice: Object) -> Finish {
    let mut finish = Finish::default();
    finish.reason = take_text(&mut choice, "finish_reason").map(reason);
    finish.model = take_text(&mut fields, "model");
    let usage = take(&mut fields, "usage").map(|usage| to_value(&usage));
    let usage = usage.or_else(|| groq_usage(&fields));
    finish.usage = usage.as_ref().map(self::usage).unwrap_or_default();
    fields.remove("object");
    choice.remove("index");
    finish.metadata = metadata(&fields);
    if let Some(usage) = usage {
        finish.metadata.insert("usage".to_owned(), usage);
    }
    let choice = metadata(&choice);
    if !choice.is_empty() {
        finish.metadata.insert("choice".to_owned(), Value::Object(choice));
    }
    finish
}

/// Groq's streams put the usage into a field of its own.
fn groq_usage(fields: &Object) -> Option<Value> {
    let usage = to_value(fields.get("x_groq")?).get("usage")?.clone();
    usage.is_object().then_some(usage)
}

/// The error that the fields of an answer, or of an event of a stream, report.
pub(crate) fn error_in(fields: &Object) -> Option<OpenAiError> {
    let error = fields.get("error")?;
    let says_nothing = matches!(error.get(), "null" | "\"\"" | "false");
    (!says_nothing).then(|| {
        #[allow(clippy::expect_used, reason = "an object with text keys always has one")]
        let body = serde_json::to_string(fields).expect("the object has a JSON form");
        refusal(None, None, &body)
    })
}

/// The error of a body: OpenAI's `{"error": {...}}`, or what compatible services make of it.
pub(crate) fn refusal(
    status: Option<u16>,
    retry_after: Option<Duration>,
    body: &str,
) -> OpenAiError {
    let json: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    // Some services put the body into a list.
    let json = json.get(0).unwrap_or(&json);
    let error = json.get("error").filter(|error| !error.is_null()).unwrap_or(json);
    let message = ["message", "msg", "detail", "error"]
        .into_iter()
        .find_map(|field| error.get(field).or_else(|| json.get(field)).filter(|v| !v.is_null()))
        .unwrap_or(error);
    let message = match message {
        Value::Null => body.trim().to_owned(),
        message => in_words(message),
    };
    let field = |name| error.get(name).filter(|value: &&Value| !value.is_null()).map(in_words);
    // As a type `error` says that it is one, no more.
    let code = field("code").or_else(|| field("type").filter(|kind| kind != "error"));
    let status = status.or_else(|| named_status(error)).or_else(|| named_status(json));
    let body = body.to_owned();
    OpenAiError::Refused { status, code, message, retry_after, body }
}

fn in_words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// How long the service asks to wait: `retry-after-ms`, or `retry-after` in seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let milliseconds = number("retry-after-ms").map(|milliseconds| milliseconds / 1_000.0);
    let seconds = milliseconds.or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn reason(text: String) -> FinishReason {
    match text.as_str() {
        "stop" => FinishReason::Stop,
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other(text),
    }
}

fn usage(json: &Value) -> Usage {
    let count = |pointer| json.pointer(pointer).and_then(Value::as_u64);
    let mut usage = Usage::new(
        count("/prompt_tokens").unwrap_or_default(),
        count("/completion_tokens").unwrap_or_default(),
    );
    usage.cached_input_tokens = count("/prompt_tokens_details/cached_tokens")
        .or_else(|| count("/prompt_cache_hit_tokens"))
        .unwrap_or_default();
    usage.reasoning_tokens = count("/completion_tokens_details/reasoning_tokens")
        .or_else(|| count("/reasoning_tokens"))
        .unwrap_or_default();
    usage
}

fn metadata(fields: &Object) -> Map<String, Value> {
    let said = fields.iter().filter(|(_, value)| value.get() != "null");
    said.map(|(name, value)| (name.clone(), to_value(value))).collect()
}
