//! Reads a whole answer.

use std::slice;

use tower_chat_core::{Answer, Message, RawJson};

use super::{call::has_free_text, finish, parse_message};
use crate::{
    AnswerError,
    finish_fields::note_free_texts,
    object::{self, Object, raw, take},
    refusal::{self, CodeFields},
};

/// Reads the body of a whole answer.
pub(crate) fn parse(body: &str) -> Result<Answer, AnswerError> {
    let malformed = |what: &str| AnswerError::malformed(what, body);
    let mut fields = object::parse(body)?;
    if let Some(error) = error_in(&fields) {
        return Err(error);
    }
    let choices = take(&mut fields, "choices").ok_or_else(|| malformed("it has no choices"))?;
    let mut choice = only_choice(&choices)?.ok_or_else(|| malformed("it has no choice"))?;
    let message = take(&mut choice, "message").ok_or_else(|| malformed("it has no message"))?;
    let message = message.parse().map_err(|_| malformed("its message is not a JSON object"))?;
    let mut message = self::message(message)?;
    let finish = finish::parse(fields, choice, message.calls().next().is_some());
    note_free_texts(slice::from_mut(&mut message), &finish, has_free_text);
    Ok(Answer::new(vec![message.into()], finish))
}

/// Returns the error that an answer or an event of a stream reports.
pub(crate) fn error_in(fields: &Object) -> Option<AnswerError> {
    let is_error = refusal::is_error(fields, CHOICES);
    is_error.then(|| refusal::parse(None, raw(fields).get(), CodeFields::OpenAi))
}

/// The name of a field that every answer has.
const CHOICES: &str = "choices";

/// Returns the only choice in a list, or `None` if the list is empty. Several choices are an error,
/// because a conversation can continue with only one of them.
pub(super) fn only_choice(choices: &RawJson) -> Result<Option<Object>, AnswerError> {
    let malformed = |what: &str| AnswerError::malformed(what, choices.get());
    let mut list: Vec<Object> =
        choices.parse().map_err(|_| malformed("its choices are not a list of objects"))?;
    let Some(choice) = list.pop() else { return Ok(None) };
    if !list.is_empty() || choice.get("index").is_some_and(|index| index.get() != "0") {
        return Err(malformed("it has several choices, and a conversation continues with one"));
    }
    let reason = object::text(&choice, "finish_reason");
    match error_in(&choice) {
        Some(error) => Err(error),
        None if reason.is_some_and(|reason| FAILED.contains(&&*reason)) => {
            Err(refusal::parse(None, choices.get(), CodeFields::OpenAi))
        }
        None => Ok(Some(choice)),
    }
}

/// The finish reasons with which OpenRouter and DeepSeek report that the answer failed
/// (<https://api-docs.deepseek.com/api/create-chat-completion>).
const FAILED: [&str; 2] = ["error", "insufficient_system_resource"];

/// Reads the message of an answer, in which the role may be missing.
pub(super) fn message(mut fields: Object) -> Result<Message, AnswerError> {
    fields.entry("role".to_owned()).or_insert_with(|| raw("assistant"));
    let json = raw(&fields);
    parse_message(json.get()).map_err(|source| AnswerError::unreadable(source, json.get()))
}
