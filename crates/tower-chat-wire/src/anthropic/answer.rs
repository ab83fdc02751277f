//! Reads a whole answer.

use serde_json::Value;
use tower_chat_core::{Answer, Finish, FinishReason, Usage};

use super::{container, parse_answer as parse_message};
use crate::{
    AnswerError,
    finish_fields::{Reasons, note_cut_off_call},
    object::{self, Object, metadata, take, take_text, to_value},
    refusal::{self, CodeFields},
};

/// The finish reasons of Anthropic Messages.
pub(crate) const REASONS: Reasons = Reasons { read: reason, spell };

/// Reads the body of a whole answer.
pub(crate) fn parse(body: &str) -> Result<Answer, AnswerError> {
    let fields = object::parse(body)?;
    if refusal::is_error(&fields, "content") {
        return Err(refusal::parse(None, body, CodeFields::Others));
    }
    let mut message =
        parse_message(body).map_err(|source| AnswerError::unreadable(source, body))?;
    let finish = finish(fields, message.calls().next().is_some());
    note_cut_off_call(&mut message, &finish);
    container::store(&mut message, finish.metadata.get("container"));
    Ok(Answer::new(vec![message.into()], finish))
}

/// Reads the finish reason, the usage and the metadata of an answer.
fn finish(mut fields: Object, has_calls: bool) -> Finish {
    let mut finish = Finish::default();
    let stop_reason = take_text(&mut fields, "stop_reason");
    finish.model = take_text(&mut fields, "model");
    let usage = take(&mut fields, "usage").map(|usage| to_value(&usage));
    finish.usage = usage.as_ref().map(self::usage).unwrap_or_default();
    for known in ["content", "role", "type"] {
        fields.remove(known);
    }
    finish.metadata = metadata(&fields);
    let unusual = stop_reason.and_then(|text| REASONS.set(&mut finish, text, has_calls));
    finish.metadata.extend(unusual.map(|text| ("stop_reason".to_owned(), Value::String(text))));
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
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other(text),
    }
}

fn spell(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "end_turn",
        FinishReason::Length => "max_tokens",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::ContentFilter => "refusal",
        FinishReason::Other(reason) => reason,
        _ => "end_turn",
    }
}

/// Reads the usage. Adds the tokens in `iterations` that a compaction (a summary of the
/// conversation by the service) used, because Anthropic's counts do not include them.
pub(crate) fn usage(json: &Value) -> Usage {
    let mut usage = usage_without_compaction(json);
    let iterations = json.pointer("/iterations").and_then(Value::as_array);
    for iteration in iterations.into_iter().flatten() {
        if iteration.get("type").and_then(Value::as_str) == Some("compaction") {
            usage += usage_without_compaction(iteration);
        }
    }
    usage
}

/// Reads the counts of one object. Anthropic's `input_tokens` do not include the tokens that the
/// service read from its prompt cache or wrote to it, so these are added.
fn usage_without_compaction(json: &Value) -> Usage {
    let count = |pointer| json.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let cached = count("/cache_read_input_tokens");
    let written = count("/cache_creation_input_tokens");
    let input = count("/input_tokens").saturating_add(written).saturating_add(cached);
    let mut usage = Usage::new(input, count("/output_tokens"));
    usage.cached_input_tokens = cached;
    usage.reasoning_tokens = count("/output_tokens_details/thinking_tokens");
    usage
}
