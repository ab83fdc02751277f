//! A whole answer.

use tower_chat_core::{ChatResponse, Message, RawJson};
use tower_chat_wire::openai_chat::parse_message;

use crate::{
    OpenAiError, completion,
    object::{Object, raw, take},
};

/// The answer that a response body is.
pub(crate) fn parse(body: &RawJson) -> Result<ChatResponse, OpenAiError> {
    let malformed = |what: &str| OpenAiError::malformed(what, body.get());
    let mut fields: Object = body.parse().map_err(|_| malformed("it is no JSON object"))?;
    if let Some(error) = completion::error_in(&fields) {
        return Err(error);
    }
    let choices = take(&mut fields, "choices").ok_or_else(|| malformed("it has no choices"))?;
    let mut choice = only_choice(&choices)?.ok_or_else(|| malformed("it has no choice"))?;
    let message = take(&mut choice, "message").ok_or_else(|| malformed("it has no message"))?;
    let message = message.parse().map_err(|_| malformed("its message is no JSON object"))?;
    Ok(ChatResponse::whole([self::message(message)?], completion::finish(fields, choice)))
}

/// The choice of a list; `None` of an empty one.
///
/// # Errors
///
/// If there are several, none of which is the answer, or if it reports an error.
pub(crate) fn only_choice(choices: &RawJson) -> Result<Option<Object>, OpenAiError> {
    let malformed = |what: &str| OpenAiError::malformed(what, choices.get());
    let mut list: Vec<Object> =
        choices.parse().map_err(|_| malformed("its choices are no list of objects"))?;
    let Some(choice) = list.pop() else { return Ok(None) };
    if !list.is_empty() || choice.get("index").is_some_and(|index| index.get() != "0") {
        return Err(malformed("it has several choices, and a conversation goes on with one"));
    }
    match completion::error_in(&choice) {
        Some(error) => Err(error),
        None if choice.get("finish_reason").is_some_and(|reason| reason.get() == r#""error""#) => {
            Err(completion::refusal(None, None, choices.get()))
        }
        None => Ok(Some(choice)),
    }
}

/// The message that an answer's fields are; the role is the assistant's where none is given.
pub(crate) fn message(mut fields: Object) -> Result<Message, OpenAiError> {
    fields.entry("role".to_owned()).or_insert_with(|| raw("assistant"));
    let json = raw(&fields);
    parse_message(json.get()).map_err(|source| OpenAiError::unreadable(source, json.get()))
}
