//! A whole answer.

use serde_json::Value;
use tower_chat_core::{Finish, FinishReason, Message, RawJson, Usage};
use tower_chat_wire::anthropic::parse_answer;

use crate::{
    GenAiError,
    object::{Object, metadata, take, take_text, text, to_value},
    refusal,
};

/// The message and the end that the body of an answer holds.
pub(crate) fn parse(body: &RawJson) -> Result<(Message, Finish), GenAiError> {
    let fields: Object =
        body.parse().map_err(|_| GenAiError::malformed("it is no JSON object", body.get()))?;
    if text(&fields, "type").is_some_and(|kind| kind == "error") {
        return Err(refusal::in_body(None, body.get()));
    }
    let message =
        parse_answer(body.get()).map_err(|source| GenAiError::unreadable(source, body.get()))?;
    Ok((message, finish(fields)))
}

/// The end of an answer, from its fields.
fn finish(mut fields: Object) -> Finish {
    let mut finish = Finish::default();
    finish.reason = take_text(&mut fields, "stop_reason").map(reason);
    finish.model = take_text(&mut fields, "model");
    let usage = take(&mut fields, "usage").map(|usage| to_value(&usage));
    finish.usage = usage.as_ref().map(self::usage).unwrap_or_default();
    for known in ["content", "role", "type"] {
        fields.remove(known);
    }
    finish.metadata = metadata(&fields);
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

/// Anthropic counts what it read from the cache, and what it wrote to it, apart.
fn usage(json: &Value) -> Usage {
    let count = |pointer| json.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let cached = count("/cache_read_input_tokens");
    let written = count("/cache_creation_input_tokens");
    let input = count("/input_tokens").saturating_add(written).saturating_add(cached);
    let mut usage = Usage::new(input, count("/output_tokens"));
    usage.cached_input_tokens = cached;
    usage.reasoning_tokens = count("/output_tokens_details/thinking_tokens");
    usage
}
