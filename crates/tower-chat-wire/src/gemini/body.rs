//! Reads bodies of requests and answers.

use tower_chat_core::{Message, RawJson, Role};

use super::{content, part::spelling};
use crate::{WireError, fields::Fields};

/// Reads the conversation of a request body. The system instruction, if any, becomes a system
/// message before the messages of the contents.
///
/// # Errors
///
/// The errors of [`parse_contents`]. [`WireError`], if the text is not a JSON object, or if the
/// field `contents` is missing.
pub fn parse_body(json: &str) -> Result<Vec<Message>, WireError> {
    let body = Fields::parse(json, "a request body")?;
    let system = spelling(&body, ["systemInstruction", "system_instruction"]);
    let system = system.and_then(|name| body.get(name)).map(content::parse_system).transpose()?;
    let contents = body.get("contents").ok_or(WireError::Field {
        what: "a request body",
        field: "contents",
        expected: "a JSON list",
    })?;
    let mut messages: Vec<Message> = system.into_iter().collect();
    messages.append(&mut parse_contents(contents.get())?);
    Ok(messages)
}

/// Reads the contents in a JSON list, the value of `contents` in a request body.
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first content that is not a JSON object, has an
/// unknown role, or has parts that are not a list. [`WireError::Json`], if the text is not a list.
pub fn parse_contents(json: &str) -> Result<Vec<Message>, WireError> {
    let mut messages: Vec<Message> = Vec::new();
    for (index, item) in list(json, "the contents")?.iter().enumerate() {
        let mut message = content::parse(item).map_err(wrap_in_message(index))?;
        let is_result = |message: &Message| message.role == Role::Tool;
        if is_result(&message) && messages.last().is_some_and(is_result) {
            content::add_envelope(&mut message);
        }
        messages.push(message);
    }
    Ok(messages)
}

/// Reads an answer of `generateContent`, or one event of a streamed answer. Each candidate becomes
/// an assistant message. An answer usually has one candidate, and has none if the service blocked
/// the prompt.
///
/// A candidate without content, for example after a safety filter has stopped the answer, becomes a
/// message without parts. The finish reason and the usage are not read.
///
/// ```
/// use tower_chat_wire::gemini::parse_answer;
/// let answer = r#"{"candidates": [
///     {"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP"}
/// ]}"#;
/// assert_eq!(parse_answer(answer)?, [tower_chat_core::Message::assistant("hello")]);
/// # Ok::<(), tower_chat_wire::WireError>(())
/// ```
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first candidate whose content cannot be read.
/// [`WireError::Json`], if the text is not an answer.
pub fn parse_answer(json: &str) -> Result<Vec<Message>, WireError> {
    let answer = Fields::parse(json, "an answer")?;
    let Some(name) = spelling(&answer, ["candidates"; 2]) else { return Ok(Vec::new()) };
    let candidates = answer
        .get(name)
        .map_or(Ok(Vec::new()), |found| list(found.get(), "the field candidates"))?;
    let messages = candidates.iter().enumerate().map(|(index, candidate)| {
        let candidate =
            Fields::parse(candidate.get(), "a candidate").map_err(wrap_in_message(index))?;
        match candidate.get("content").filter(|content| content.get() != "null") {
            Some(content) => content::parse_answer(content).map_err(wrap_in_message(index)),
            None => Ok(Message::new(Role::Assistant, Vec::new())),
        }
    });
    messages.collect()
}

fn list(json: &str, what: &'static str) -> Result<Vec<RawJson>, WireError> {
    serde_json::from_str(json).map_err(|source| WireError::Json {
        what,
        expected: "a JSON list",
        source,
    })
}

fn wrap_in_message(index: usize) -> impl Fn(WireError) -> WireError {
    move |source| WireError::InMessage { index, source: source.into() }
}
