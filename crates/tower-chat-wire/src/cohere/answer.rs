//! Reads and writes a whole answer.

use serde_json::{Value, json};
use tower_chat_core::{Answer, Finish, FinishReason, Message, RawJson, Usage};

use super::{message, render_messages};
use crate::{
    AnswerError,
    body::object_json,
    finish_fields::{Reasons, put_usage},
    object::{self, Object, metadata, raw, take, take_text, text, to_value},
    refusal::{self, CodeFields},
};

const REASONS: Reasons = Reasons { read: reason, spell };

/// Reads the body of a whole answer.
pub(crate) fn parse(body: &str) -> Result<Answer, AnswerError> {
    let malformed = |what: &str| AnswerError::malformed(what, body);
    let mut fields = object::parse(body)?;
    if let Some(error) = error_in(&fields, body) {
        return Err(error);
    }
    let message = take(&mut fields, "message");
    let message = message.ok_or_else(|| malformed("it has no message"))?;
    let message = message::parse_answer(&message)
        .map_err(|source| AnswerError::unreadable(source, message.get()))?;
    let finish = finish(fields, message.calls().next().is_some());
    Ok(Answer::new(vec![message.into()], finish))
}

/// Returns the error that an answer reports, in its finish reason or in the fields of an error.
fn error_in(fields: &Object, body: &str) -> Option<AnswerError> {
    let code =
        text(fields, "finish_reason").filter(|it| matches!(it.as_str(), "ERROR" | "TIMEOUT"));
    if code.is_none() && refusal::is_error(fields, "message") {
        return Some(refusal::parse(None, body, CodeFields::Others));
    }
    let message = text(fields, "error").unwrap_or_else(|| "the answer failed".to_owned());
    let body = body.to_owned();
    code.map(|code| AnswerError::Refused {
        status: None,
        code: Some(code),
        message,
        retry_after: None,
        body,
    })
}

/// Reads the finish reason, the usage and the metadata of an answer.
fn finish(mut fields: Object, has_calls: bool) -> Finish {
    let mut finish = Finish::default();
    let finish_reason = take_text(&mut fields, "finish_reason");
    let usage = take(&mut fields, "usage").map(|usage| to_value(&usage));
    finish.usage = usage.as_ref().map(self::usage).unwrap_or_default();
    finish.metadata = metadata(&fields);
    let unusual = finish_reason.and_then(|text| REASONS.set(&mut finish, text, has_calls));
    finish.metadata.extend(unusual.map(|text| ("finish_reason".to_owned(), Value::String(text))));
    if let Some(usage) = usage {
        finish.metadata.insert("usage".to_owned(), usage);
    }
    finish
}

fn reason(text: String) -> FinishReason {
    match text.as_str() {
        "COMPLETE" | "STOP_SEQUENCE" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "TOOL_CALL" => FinishReason::ToolCalls,
        _ => FinishReason::Other(text),
    }
}

fn spell(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Length => "MAX_TOKENS",
        FinishReason::ToolCalls => "TOOL_CALL",
        FinishReason::Other(reason) => reason,
        _ => "COMPLETE",
    }
}

fn usage(json: &Value) -> Usage {
    let count = |pointer| json.pointer(pointer).and_then(Value::as_f64).unwrap_or_default();
    // Cohere sends token counts as integers or as floating-point numbers.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of tokens")]
    let count = |pointer| count(pointer) as u64;
    let mut usage = Usage::new(count("/tokens/input_tokens"), count("/tokens/output_tokens"));
    usage.cached_input_tokens = count("/cached_tokens");
    usage
}

/// Writes the body of a whole answer with one message.
pub(crate) fn render(message: &Message, finish: &Finish) -> RawJson {
    let has_calls = message.calls().next().is_some();
    let rendered = render_messages([message]).pop();
    let mut body = finish.metadata.clone();
    let message = rendered.unwrap_or_else(|| raw(&json!({"role": "assistant"})));
    let reason = REASONS.text(finish, body.get("finish_reason"), has_calls);
    body.insert("finish_reason".to_owned(), json!(reason));
    if finish.usage != Usage::default() || body.contains_key("usage") {
        put_usage(&mut body, "usage", &finish.usage, usage, render_usage);
    }
    object_json(&body, [("message", Some(message))])
}

fn render_usage(usage: &Usage) -> Value {
    json!({
        "tokens": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        "cached_tokens": usage.cached_input_tokens,
    })
}
