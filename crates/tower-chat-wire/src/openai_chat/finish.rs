//! Reads the finish reason, the usage and the metadata of an answer.

use serde_json::Value;
use tower_chat_core::{Finish, FinishReason, Usage};

use crate::{
    finish_fields::Reasons,
    object::{self, Object, metadata, raw, take, take_text, to_value},
};

/// The finish reasons of Chat Completions.
pub(crate) const REASONS: Reasons = Reasons { read: reason, spell };

const FINISH_REASON: &str = "finish_reason";

/// The field in which OpenRouter sends the finish reason of the service that runs the model.
const NATIVE_REASON: &str = "native_finish_reason";

/// Returns whether a finish reason of any service means that the answer reached a token limit.
fn is_length(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    matches!(
        reason.as_str(),
        "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_length"
            | "model_context_window_exceeded"
            | "context_length_exceeded"
    )
}

/// Returns whether a choice reports that the answer reached a token limit.
pub(super) fn ended_for_length(choice: &Object) -> bool {
    [FINISH_REASON, NATIVE_REASON]
        .into_iter()
        .filter_map(|name| object::text(choice, name))
        .any(|text| is_length(&text))
}

/// Reads the finish reason, the usage and the metadata of an answer.
pub(super) fn parse(mut fields: Object, mut choice: Object, has_calls: bool) -> Finish {
    let mut finish = Finish::default();
    let text = take_text(&mut choice, FINISH_REASON).filter(|text| !text.is_empty());
    let is_cut_off = object::text(&choice, NATIVE_REASON).is_some_and(|text| is_length(&text));
    match text {
        // The reason from the service that runs the model is more precise than OpenRouter's reason,
        // which is stored in the metadata.
        Some(text) if is_cut_off && reason(text.clone()) != FinishReason::Length => {
            finish.reason = Some(FinishReason::Length);
            choice.insert(FINISH_REASON.to_owned(), raw(&text));
        }
        Some(text) => {
            if let Some(unusual) = REASONS.set(&mut finish, text, has_calls) {
                choice.insert(FINISH_REASON.to_owned(), raw(&unusual));
            }
        }
        None => finish.reason = is_cut_off.then_some(FinishReason::Length),
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

/// Returns the usage in the field `x_groq`, in which Groq sends the usage of a streamed answer.
fn groq_usage(fields: &Object) -> Option<Value> {
    let usage = to_value(fields.get("x_groq")?).get("usage")?.clone();
    usage.is_object().then_some(usage)
}

fn reason(text: String) -> FinishReason {
    match text.as_str() {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        text if is_length(text) => FinishReason::Length,
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

/// Reads the usage, from the fields of OpenAI, DeepSeek and other services.
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
    with_separate_reasoning(usage, count("/total_tokens"))
}

/// Adds the reasoning tokens to the output tokens if the service counts them separately, because
/// the output tokens of [`Usage`] include them.
///
/// A service counts reasoning tokens separately if `total`, the number of all tokens that it
/// reports, exceeds the sum of input and output tokens. If the service does not report the number
/// of reasoning tokens, this number is the difference.
pub(crate) fn with_separate_reasoning(mut usage: Usage, total: Option<u64>) -> Usage {
    let separate = match (total, usage.reasoning_tokens) {
        (Some(total), 0) => total.saturating_sub(usage.total_tokens()),
        (Some(total), named) if total.saturating_sub(usage.total_tokens()) >= named => named,
        // The output tokens are too few to include the reasoning tokens.
        (None, named) if named > usage.output_tokens => named,
        (Some(_) | None, _) => 0,
    };
    usage.reasoning_tokens = usage.reasoning_tokens.max(separate);
    usage.output_tokens = usage.output_tokens.saturating_add(separate);
    usage
}
