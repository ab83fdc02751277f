//! A whole answer.

use serde_json::Value;
use tower_chat_core::{Finish, FinishReason, Message, RawJson, Usage};

use super::message;
use crate::{
    GenAiError,
    object::{Object, metadata, take, take_object, take_text, to_value},
};

/// The message and the end that the body of an answer holds.
pub(crate) fn parse(body: &RawJson) -> Result<(Message, Finish), GenAiError> {
    let malformed = |what: &str| GenAiError::malformed(what, body.get());
    let mut fields: Object = body.parse().map_err(|_| malformed("it is no JSON object"))?;
    let output = take_object(&mut fields, "output");
    let message = output.and_then(|mut output| take_object(&mut output, "message"));
    let message = message.ok_or_else(|| malformed("it has no message"))?;
    let message = message::parse(message)?;
    Ok((message, finish(fields)))
}

/// The end of an answer, from its fields but `output`. The service does not name the model.
fn finish(mut fields: Object) -> Finish {
    let mut finish = Finish::default();
    finish.reason = take_text(&mut fields, "stopReason").map(reason);
    let usage = take(&mut fields, "usage").map(|usage| to_value(&usage));
    finish.usage = usage.as_ref().map(self::usage).unwrap_or_default();
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
        "content_filtered" | "guardrail_intervened" => FinishReason::ContentFilter,
        _ => FinishReason::Other(text),
    }
}

/// Bedrock counts what it read from the cache, and what it wrote to it, apart.
fn usage(json: &Value) -> Usage {
    let count = |name| json.get(name).and_then(Value::as_u64).unwrap_or_default();
    let cached = count("cacheReadInputTokens");
    let input =
        count("inputTokens").saturating_add(count("cacheWriteInputTokens")).saturating_add(cached);
    let mut usage = Usage::new(input, count("outputTokens"));
    usage.cached_input_tokens = cached;
    usage
}
