//! Reads and writes a whole answer.

use serde_json::{Map, Value, json};
use tower_chat_core::{Answer, Finish, FinishReason, Message, RawJson, Usage};

use super::{message, render_messages};
use crate::{
    AnswerError,
    body::object_json,
    finish_fields::{Reasons, note_empty_call},
    object::{self, Object, metadata, raw, take, take_text},
    refusal::{self, CodeFields},
};

const REASONS: Reasons = Reasons { read: reason, spell };

/// Reads the body of a whole answer.
pub(crate) fn parse(body: &str) -> Result<Answer, AnswerError> {
    let malformed = |what: &str| AnswerError::malformed(what, body);
    let mut fields = object::parse(body)?;
    if refusal::is_error(&fields, "message") {
        return Err(refusal::parse(None, body, CodeFields::Others));
    }
    let message = take(&mut fields, "message");
    let message = message.ok_or_else(|| malformed("it has no message"))?;
    let mut message = message::parse_answer(&message)
        .map_err(|source| AnswerError::unreadable(source, message.get()))?;
    let finish = finish(fields, message.calls().next().is_some());
    note_empty_call(&mut message, &finish);
    Ok(Answer::new(vec![message.into()], finish))
}

/// Reads the finish reason, the usage and the metadata of an answer.
fn finish(mut fields: Object, has_calls: bool) -> Finish {
    let mut finish = Finish::default();
    let done_reason = take_text(&mut fields, "done_reason");
    finish.model = take_text(&mut fields, "model");
    finish.metadata = metadata(&fields);
    finish.usage = usage(&finish.metadata);
    let unusual = done_reason.and_then(|text| REASONS.set(&mut finish, text, has_calls));
    finish.metadata.extend(unusual.map(|text| ("done_reason".to_owned(), Value::String(text))));
    finish.metadata.retain(|name, value| name != "done" || *value != Value::Bool(true));
    finish
}

fn reason(text: String) -> FinishReason {
    match text.as_str() {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        _ => FinishReason::Other(text),
    }
}

/// Returns the text for a finish reason. The text for a stop is also the text for calls.
fn spell(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Other(reason) => reason,
        _ => "stop",
    }
}

fn usage(fields: &Map<String, Value>) -> Usage {
    let count = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mut usage = Usage::new(count("prompt_eval_count"), count("eval_count"));
    usage.cached_input_tokens = count("prompt_eval_cached_count");
    usage
}

/// Writes the body of a whole answer with one message.
pub(crate) fn render(message: &Message, finish: &Finish) -> RawJson {
    let has_calls = message.calls().next().is_some();
    let rendered = render_messages([message]).pop();
    let mut body = finish.metadata.clone();
    let message = rendered.unwrap_or_else(|| raw(&json!({"role": "assistant", "content": ""})));
    if let Some(model) = &finish.model {
        body.insert("model".to_owned(), json!(model));
    }
    let reason = REASONS.text(finish, body.get("done_reason"), has_calls);
    body.insert("done_reason".to_owned(), json!(reason));
    body.entry("done").or_insert(Value::Bool(true));
    if usage(&finish.metadata) != finish.usage {
        let Usage { input_tokens, cached_input_tokens, output_tokens, .. } = finish.usage;
        body.insert("prompt_eval_count".to_owned(), json!(input_tokens));
        body.insert("prompt_eval_cached_count".to_owned(), json!(cached_input_tokens));
        body.insert("eval_count".to_owned(), json!(output_tokens));
    }
    object_json(&body, [("message", Some(message))])
}
