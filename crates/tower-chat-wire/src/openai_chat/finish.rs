//! How an answer ended, and its usage.

use serde_json::Value;
use tower_chat_core::{Finish, FinishReason, Usage};

use crate::{
    finish_fields::Reasons,
    object::{Object, metadata, raw, take, take_text, to_value},
};

/// The reasons of this wire.
pub(crate) const REASONS: Reasons = Reasons { read: reason, spell };

const FINISH_REASON: &str = "finish_reason";

/// The end of an answer, from the fields of it but `choices`, and of its choice but the message.
pub(super) fn parse(mut fields: Object, mut choice: Object, has_calls: bool) -> Finish {
    let mut finish = Finish::default();
    let text = take_text(&mut choice, FINISH_REASON).filter(|text| !text.is_empty());
    if let Some(unusual) = text.and_then(|text| REASONS.set(&mut finish, text, has_calls)) {
        choice.insert(FINISH_REASON.to_owned(), raw(&unusual));
    }
    finish.model = take_text(&mut fields, "model").filter(|text| !text.is_empty());
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

/// Groq's streams have the usage in a field of its own.
fn groq_usage(fields: &Object) -> Option<Value> {
    let usage = to_value(fields.get("x_groq")?).get("usage")?.clone();
    usage.is_object().then_some(usage)
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

fn spell(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Other(reason) => reason,
        _ => "stop",
    }
}

/// The usage, in the fields of OpenAI or, for tokens that were cached and those of reasoning, in
/// those of DeepSeek (`prompt_cache_hit_tokens`) and of others (`reasoning_tokens`).
pub(crate) fn usage(json: &Value) -> Usage {
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
