//! Reads a whole answer.

use serde_json::Value;
use tower_chat_core::{Answer, Finish, FinishReason, Usage};

use super::{GeminiAccumulator, parse_answer};
use crate::{
    AnswerError,
    finish_fields::{Reasons, note_empty_call},
    object::{self, Object, metadata, raw, take, take_text, to_value},
    refusal::{self, CodeFields},
    stream::{Frame, ResponseAccumulator},
};

/// The finish reasons of Gemini.
pub(crate) const REASONS: Reasons = Reasons { read: reason, spell };

const FINISH_REASON: &str = "finishReason";

/// Reads the body of a whole answer, including calls whose arguments are in pieces (`partialArgs`).
pub(crate) fn parse_whole(body: &str) -> Result<Answer, AnswerError> {
    if !body.contains(PARTIAL_ARGUMENTS) {
        return parse(body);
    }
    let mut accumulator = Box::<GeminiAccumulator>::default();
    accumulator.push(&Frame { event: None, data: body.to_owned() })?;
    accumulator.finish()
}

/// The name of the field with the pieces of a call's arguments, as JSON text.
const PARTIAL_ARGUMENTS: &str = "\"partialArgs\"";

/// Reads the body of a whole answer in which no call has its arguments in pieces.
pub(super) fn parse(body: &str) -> Result<Answer, AnswerError> {
    let malformed = |what: &str| AnswerError::malformed(what, body);
    let mut fields = object::parse(body)?;
    if let Some(error) = error_in(&fields, body) {
        return Err(error);
    }
    let messages = parse_answer(body).map_err(|source| AnswerError::unreadable(source, body))?;
    let candidates = take(&mut fields, "candidates");
    let candidates = candidates.and_then(|list| list.parse::<Vec<Object>>().ok());
    let mut messages = messages.into_iter();
    let mut candidates = candidates.unwrap_or_default().into_iter();
    match (messages.next(), candidates.next(), messages.next()) {
        (Some(mut message), Some(candidate), None) => {
            let has_calls = message.calls().next().is_some();
            let finish = finish(fields, candidate, has_calls);
            note_empty_call(&mut message, &finish);
            Ok(Answer::new(vec![message.into()], finish))
        }
        (None, ..) => Err(malformed("it has no candidate")),
        _ => Err(malformed("it has several candidates, and a conversation continues with one")),
    }
}

/// Returns the error of an answer or an event: an `error`, or a blocked prompt.
pub(super) fn error_in(fields: &Object, body: &str) -> Option<AnswerError> {
    if refusal::is_error(fields, "candidates") {
        return Some(refusal::parse(None, body, CodeFields::Others));
    }
    let feedback = to_value(fields.get("promptFeedback")?);
    let code = feedback.get("blockReason")?.as_str()?.to_owned();
    Some(AnswerError::Refused {
        status: None,
        message: format!("the prompt was blocked: {feedback}"),
        // With this prefix, the error is not retryable: the service would block the prompt again.
        code: Some(format!("PROHIBITED_PROMPT_{code}")),
        retry_after: None,
        body: body.to_owned(),
    })
}

/// Reads the finish reason, the usage and the metadata of an answer.
fn finish(mut fields: Object, mut candidate: Object, has_calls: bool) -> Finish {
    let mut finish = Finish::default();
    if let Some(text) = take_text(&mut candidate, FINISH_REASON)
        && let Some(unusual) = REASONS.set(&mut finish, text, has_calls)
    {
        candidate.insert(FINISH_REASON.to_owned(), raw(&unusual));
    }
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

/// Returns the text for a finish reason. The text for a stop is also the text for calls.
fn spell(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Length => "MAX_TOKENS",
        FinishReason::ContentFilter => "SAFETY",
        FinishReason::Other(reason) => reason,
        _ => "STOP",
    }
}

/// Reads the usage. Gemini counts the tokens of thoughts and the input of its own tools separately,
/// so these are added.
pub(crate) fn usage(json: &Value) -> Usage {
    let count = |name| json.get(name).and_then(Value::as_u64).unwrap_or_default();
    let thought = count("thoughtsTokenCount");
    let input = count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount"));
    let mut usage = Usage::new(input, count("candidatesTokenCount").saturating_add(thought));
    usage.cached_input_tokens = count("cachedContentTokenCount");
    usage.reasoning_tokens = thought;
    usage
}
