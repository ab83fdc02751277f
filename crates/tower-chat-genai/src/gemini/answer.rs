//! A whole answer.

use serde_json::Value;
use tower_chat_core::{Finish, FinishReason, Message, RawJson, Usage};
use tower_chat_wire::gemini::parse_answer;

use crate::{
    GenAiError,
    object::{Object, metadata, raw, take, take_text, to_value},
    refusal,
};

/// The message and the end that the body of an answer holds.
pub(crate) fn parse(body: &RawJson) -> Result<(Message, Finish), GenAiError> {
    let malformed = |what: &str| GenAiError::malformed(what, body.get());
    let mut fields: Object = body.parse().map_err(|_| malformed("it is no JSON object"))?;
    if let Some(error) = error_in(&fields, body.get()) {
        return Err(error);
    }
    let messages =
        parse_answer(body.get()).map_err(|source| GenAiError::unreadable(source, body.get()))?;
    let candidates = take(&mut fields, "candidates");
    let candidates = candidates.and_then(|list| list.parse::<Vec<Object>>().ok());
    let mut messages = messages.into_iter();
    let mut candidates = candidates.unwrap_or_default().into_iter();
    match (messages.next(), candidates.next(), messages.next()) {
        (Some(message), Some(candidate), None) => Ok((message, finish(fields, candidate))),
        (None, ..) => Err(malformed("it has no candidate")),
        _ => Err(malformed("it has several candidates, and a conversation goes on with one")),
    }
}

/// The error that the fields of an answer, or of an event of a stream, report: an `error`, or a
/// prompt that was blocked.
pub(super) fn error_in(fields: &Object, body: &str) -> Option<GenAiError> {
    if fields.get("error").is_some_and(|error| error.get() != "null") {
        return Some(refusal::in_body(None, body));
    }
    let feedback = to_value(fields.get("promptFeedback")?);
    let code = feedback.get("blockReason")?.as_str()?.to_owned();
    Some(GenAiError::Refused {
        status: None,
        message: format!("the prompt was blocked: {feedback}"),
        // By its own name it would look as if it could be asked again.
        code: Some(format!("PROHIBITED_PROMPT_{code}")),
        retry_after: None,
        body: body.to_owned(),
    })
}

/// The end of an answer, from its fields but `candidates`, and from its candidate.
fn finish(mut fields: Object, mut candidate: Object) -> Finish {
    let mut finish = Finish::default();
    finish.reason = take_text(&mut candidate, "finishReason").map(reason);
    finish.model = take_text(&mut fields, "modelVersion");
    let usage = take(&mut fields, "usageMetadata").map(|usage| to_value(&usage));
    finish.usage = usage.as_ref().map(self::usage).unwrap_or_default();
    candidate.remove("content");
    if candidate.get("index").is_some_and(|index| index.get() == "0") {
        candidate.remove("index");
    }
    finish.metadata = metadata(&fields);
    if let Some(usage) = usage {
        finish.metadata.insert("usageMetadata".to_owned(), usage);
    }
    if !candidate.is_empty() {
        finish.metadata.insert("candidate".to_owned(), to_value(&raw(&candidate)));
    }
    finish
}

fn reason(text: String) -> FinishReason {
    match text.as_str() {
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
            FinishReason::ContentFilter
        }
        _ => FinishReason::Other(text),
    }
}

/// Gemini counts what it thought, and what its own tools gave it to read, apart.
fn usage(json: &Value) -> Usage {
    let count = |name| json.get(name).and_then(Value::as_u64).unwrap_or_default();
    let thought = count("thoughtsTokenCount");
    let input = count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount"));
    let mut usage = Usage::new(input, count("candidatesTokenCount").saturating_add(thought));
    usage.cached_input_tokens = count("cachedContentTokenCount");
    usage.reasoning_tokens = thought;
    usage
}
