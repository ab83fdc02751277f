//! Reads and writes a whole answer.

use serde_json::{Value, json};
use tower_chat_core::{Answer, Finish, FinishReason, Message, RawJson, Usage};

use super::{WIRE, message, turns::Conversation};
use crate::{
    AnswerError, as_read,
    body::object_json,
    finish_fields::{Reasons, note_cut_off_call, put_usage},
    object::{self, Object, metadata, raw, take, take_object, take_text, to_value},
    refusal::{self, CodeFields},
};

const REASONS: Reasons = Reasons { read: reason, spell };

/// Reads the body of a whole answer.
pub(crate) fn parse(body: &str) -> Result<Answer, AnswerError> {
    let malformed = |what: &str| AnswerError::malformed(what, body);
    let mut fields = object::parse(body)?;
    if refusal::is_error(&fields, "output") {
        return Err(refusal::parse(None, body, CodeFields::Others));
    }
    let output = take_object(&mut fields, "output");
    let message = output.and_then(|mut output| take(&mut output, "message"));
    let message = message.ok_or_else(|| malformed("it has no message"))?;
    let mut message = message::parse_answer(&message)
        .map_err(|source| AnswerError::unreadable(source, message.get()))?;
    let finish = finish(fields, message.calls().next().is_some());
    note_cut_off_call(&mut message, &finish);
    Ok(Answer::new(vec![message.into()], finish))
}

/// Reads the finish reason, the usage and the metadata of an answer. The answer names no model.
fn finish(mut fields: Object, has_calls: bool) -> Finish {
    let mut finish = Finish::default();
    let stop_reason = take_text(&mut fields, "stopReason");
    let usage = take(&mut fields, "usage").map(|usage| to_value(&usage));
    finish.usage = usage.as_ref().map(self::usage).unwrap_or_default();
    finish.metadata = metadata(&fields);
    let unusual = stop_reason.and_then(|text| REASONS.set(&mut finish, text, has_calls));
    finish.metadata.extend(unusual.map(|text| ("stopReason".to_owned(), Value::String(text))));
    if let Some(usage) = usage {
        finish.metadata.insert("usage".to_owned(), usage);
    }
    finish
}

fn reason(text: String) -> FinishReason {
    match text.as_str() {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::ToolCalls,
        "content_filtered" | "guardrail_intervened" => FinishReason::ContentFilter,
        _ => FinishReason::Other(text),
    }
}

fn spell(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Length => "max_tokens",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::ContentFilter => "content_filtered",
        FinishReason::Other(reason) => reason,
        _ => "end_turn",
    }
}

/// Reads the usage. Bedrock's `inputTokens` do not include the tokens that the service read from
/// its prompt cache or wrote to it, so these are added.
pub(crate) fn usage(json: &Value) -> Usage {
    let count = |name| json.get(name).and_then(Value::as_u64).unwrap_or_default();
    let cached = count("cacheReadInputTokens");
    let input =
        count("inputTokens").saturating_add(count("cacheWriteInputTokens")).saturating_add(cached);
    let mut usage = Usage::new(input, count("outputTokens"));
    usage.cached_input_tokens = cached;
    usage
}

/// Writes the body of a whole answer with one message.
pub(crate) fn render(message: &Message, finish: &Finish) -> RawJson {
    let has_calls = message.calls().next().is_some();
    let json = as_read::unchanged(message, WIRE, message::parse).or_else(|| {
        let mut conversation = Conversation::default();
        conversation.push_usual(message);
        conversation.messages().pop()
    });
    let json = json.unwrap_or_else(|| raw(&json!({"role": "assistant", "content": []})));
    let output = raw(&Object::from([("message".to_owned(), json)]));
    let mut body = finish.metadata.clone();
    let reason = REASONS.text(finish, body.get("stopReason"), has_calls);
    body.insert("stopReason".to_owned(), json!(reason));
    if finish.usage != Usage::default() || body.contains_key("usage") {
        put_usage(&mut body, "usage", &finish.usage, usage, render_usage);
    }
    object_json(&body, [("output", Some(output))])
}

fn render_usage(usage: &Usage) -> Value {
    json!({
        "inputTokens": usage.input_tokens.saturating_sub(usage.cached_input_tokens),
        "cacheReadInputTokens": usage.cached_input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens(),
    })
}
