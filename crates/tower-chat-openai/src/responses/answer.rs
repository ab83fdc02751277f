//! A response: what the model put out, and how it ended.

use serde_json::{Map, Value};
use tower_chat_core::{Answer, Finish, FinishReason, Message, RawJson, Usage};
use tower_chat_wire::openai_responses::parse_input;

use super::keeping::Place;
use crate::{
    OpenAiError, completion,
    object::{Object, as_text, raw, take, take_text, to_value},
};

/// What an answer is read with.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) place: Place,
    /// Whether it may be answered later.
    pub(super) is_background: bool,
}

/// The answer that a response body is.
pub(super) fn parse(body: &RawJson, asked: &Asked) -> Result<Answer, OpenAiError> {
    let fields: Object =
        body.parse().map_err(|_| OpenAiError::malformed("it is no JSON object", body.get()))?;
    read(fields, Vec::new(), asked)
}

/// The answer that a response is. `items` are those that came one by one before it: some services
/// leave the response's own list of them empty.
pub(super) fn read(
    mut response: Object,
    items: Vec<RawJson>,
    asked: &Asked,
) -> Result<Answer, OpenAiError> {
    if let Some(error) = completion::error_in(&response) {
        return Err(error);
    }
    let whole = |response: &Object| raw(response).get().to_owned();
    let status = response.get("status").and_then(as_text);
    match status.as_deref() {
        Some(status @ ("failed" | "cancelled")) => {
            return Err(OpenAiError::Refused {
                status: None,
                code: Some(format!("response_{status}")),
                message: format!("the response is {status}"),
                retry_after: None,
                body: whole(&response),
            });
        }
        Some("queued" | "in_progress") if asked.is_background => {
            return pending(response, asked);
        }
        Some(status @ ("queued" | "in_progress")) => {
            let what = format!("it is {status}, although no background answer was asked for");
            return Err(OpenAiError::malformed(what, whole(&response)));
        }
        // Completed or incomplete; services that leave it out answer whole.
        Some(_) | None => {}
    }
    let output = match take(&mut response, "output") {
        Some(output) => output
            .parse()
            .map_err(|_| OpenAiError::malformed("its output is no list", output.get()))?,
        None if items.is_empty() => {
            return Err(OpenAiError::malformed("it has no output", whole(&response)));
        }
        None => Vec::new(),
    };
    let output: Vec<RawJson> = if output.len() < items.len() { items } else { output };
    let messages = messages(&output)?;
    let finish = finish(response, &messages, asked);
    Ok(Answer::new(messages.into_iter().map(Into::into).collect::<Vec<_>>(), finish))
}

fn messages(output: &[RawJson]) -> Result<Vec<Message>, OpenAiError> {
    let list = raw(output);
    parse_input(list.get()).map_err(|source| OpenAiError::unreadable(source, list.get()))
}

/// The answer to come: nothing yet but the token by which to ask for it.
fn pending(response: Object, asked: &Asked) -> Result<Answer, OpenAiError> {
    let id = response.get("id").and_then(as_text).ok_or_else(|| {
        OpenAiError::malformed("it is to come later but has no id", raw(&response).get())
    })?;
    let mut finish = finish(response.clone(), &[], asked);
    finish.reason = None;
    finish.conversation_id = asked.place.before(&response);
    finish.continuation = Some(id);
    Ok(Answer::new(Vec::new(), finish))
}

fn finish(mut response: Object, messages: &[Message], asked: &Asked) -> Finish {
    let mut finish = Finish::new(reason(&response, messages));
    finish.conversation_id = asked.place.after(&response);
    finish.model = take_text(&mut response, "model");
    response.remove("object");
    response.remove("output");
    let said = response.iter().filter(|(_, value)| value.get() != "null");
    finish.metadata =
        said.map(|(name, value)| (name.clone(), to_value(value))).collect::<Map<_, _>>();
    finish.usage = finish.metadata.get("usage").map(usage).unwrap_or_default();
    finish
}

/// Responses name no reason of a whole answer: it ends with calls, or because all is said.
fn reason(response: &Object, messages: &[Message]) -> FinishReason {
    if response.get("status").is_some_and(|status| status.get() == r#""incomplete""#) {
        let details = response.get("incomplete_details").map(to_value).unwrap_or_default();
        return match details.get("reason").and_then(Value::as_str) {
            Some("max_output_tokens" | "max_tokens") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            other => FinishReason::Other(other.unwrap_or("incomplete").to_owned()),
        };
    }
    let asks = messages.iter().any(|message| message.calls().next().is_some());
    if asks { FinishReason::ToolCalls } else { FinishReason::Stop }
}

fn usage(json: &Value) -> Usage {
    let count = |pointer| json.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let mut usage = Usage::new(count("/input_tokens"), count("/output_tokens"));
    usage.cached_input_tokens = count("/input_tokens_details/cached_tokens");
    usage.reasoning_tokens = count("/output_tokens_details/reasoning_tokens");
    usage
}
