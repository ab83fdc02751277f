//! A whole answer.

use serde_json::Value;
use tower_chat_core::{Finish, FinishReason, Message, RawJson, Usage};

use super::message;
use crate::{
    GenAiError,
    object::{Object, metadata, take, take_object, take_text, text, to_value},
};

/// The message and the end that the body of an answer holds.
pub(crate) fn parse(body: &RawJson) -> Result<(Message, Finish), GenAiError> {
    let malformed = |what: &str| GenAiError::malformed(what, body.get());
    let mut fields: Object = body.parse().map_err(|_| malformed("it is no JSON object"))?;
    if let Some(error) = error_in(&fields, body.get()) {
        return Err(error);
    }
    let message = take_object(&mut fields, "message");
    let message = message.ok_or_else(|| malformed("it has no message"))?;
    let message = message::parse(message)?;
    Ok((message, finish(fields)))
}

/// The error that the end of an answer reports as the reason for it.
fn error_in(fields: &Object, body: &str) -> Option<GenAiError> {
    let code =
        text(fields, "finish_reason").filter(|it| matches!(it.as_str(), "ERROR" | "TIMEOUT"));
    let message = text(fields, "error").unwrap_or_else(|| "the answer failed".to_owned());
    let body = body.to_owned();
    code.map(|code| GenAiError::Refused {
        status: None,
        code: Some(code),
        message,
        retry_after: None,
        body,
    })
}

/// The end of an answer, from its fields but `message`.
fn finish(mut fields: Object) -> Finish {
    let mut finish = Finish::default();
    finish.reason = take_text(&mut fields, "finish_reason").map(reason);
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
        "COMPLETE" | "STOP_SEQUENCE" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "TOOL_CALL" => FinishReason::ToolCalls,
        _ => FinishReason::Other(text),
    }
}

fn usage(json: &Value) -> Usage {
    let count = |pointer| json.pointer(pointer).and_then(Value::as_f64).unwrap_or_default();
    // They are sent as numbers of any form.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of tokens")]
    let count = |pointer| count(pointer) as u64;
    let mut usage = Usage::new(count("/tokens/input_tokens"), count("/tokens/output_tokens"));
    usage.cached_input_tokens = count("/cached_tokens");
    usage
}
