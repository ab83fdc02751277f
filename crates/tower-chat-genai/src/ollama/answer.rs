//! A whole answer.

use serde_json::Value;
use tower_chat_core::{Finish, FinishReason, Message, RawJson, Usage};

use super::message;
use crate::{
    GenAiError,
    object::{Object, metadata, take_object, take_text},
    refusal,
};

/// The message and the end that the body of an answer holds.
pub(crate) fn parse(body: &RawJson) -> Result<(Message, Finish), GenAiError> {
    let malformed = |what: &str| GenAiError::malformed(what, body.get());
    let mut fields: Object = body.parse().map_err(|_| malformed("it is no JSON object"))?;
    if fields.contains_key("error") {
        return Err(refusal::in_body(None, body.get()));
    }
    let message = take_object(&mut fields, "message");
    let message = message.ok_or_else(|| malformed("it has no message"))?;
    let message = message::parse(message)?;
    Ok((message, finish(fields)))
}

/// The end of an answer, from its fields but `message`.
fn finish(mut fields: Object) -> Finish {
    let mut finish = Finish::default();
    finish.reason = take_text(&mut fields, "done_reason").map(reason);
    finish.model = take_text(&mut fields, "model");
    let count = |name: &str| fields.get(name).and_then(|count| count.parse().ok()).unwrap_or(0);
    finish.usage = Usage::new(count("prompt_eval_count"), count("eval_count"));
    finish.usage.cached_input_tokens = count("prompt_eval_cached_count");
    finish.metadata = metadata(&fields);
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
