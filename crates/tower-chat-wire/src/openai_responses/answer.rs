//! Reads a whole response: its messages and its [`Finish`].
//!
//! The continuation token of a background answer is the id with which the client fetches the
//! answer. A provider-executed call is a call of a tool that the provider runs itself.

use serde_json::Value;
use tower_chat_core::{Answer, Finish, FinishReason, Message, Part, RawJson, Usage};

use super::{call::kind_of, history, kind::CUSTOM, parse_input};
use crate::{
    AnswerError,
    body::AnswerContext,
    finish_fields::note_free_texts,
    object::{self, Object, metadata, raw, take, take_text, text, to_value},
    openai_chat::{error_in, with_separate_reasoning},
};

/// Reads the body of a response.
pub(crate) fn parse(body: &str, context: &AnswerContext) -> Result<Answer, AnswerError> {
    read_response(object::parse(body)?, Vec::new(), context)
}

/// Reads a response. `items` are the items that were received in the stream before the response. If
/// the list `output` of the response is shorter, `items` replaces this list, because some services
/// send an empty list in the response.
pub(super) fn read_response(
    mut response: Object,
    items: Vec<RawJson>,
    context: &AnswerContext,
) -> Result<Answer, AnswerError> {
    if let Some(error) = error_in(&response) {
        return Err(error);
    }
    let whole = |response: &Object| raw(response).get().to_owned();
    let status = text(&response, "status");
    match status.as_deref() {
        Some(status @ ("failed" | "cancelled")) => {
            return Err(AnswerError::Refused {
                status: None,
                code: Some(format!("response_{status}")),
                message: format!("the response is {status}"),
                retry_after: None,
                body: whole(&response),
            });
        }
        Some("queued" | "in_progress") if context.is_background => {
            return pending_answer(response, context);
        }
        Some(status @ ("queued" | "in_progress")) => {
            let what = format!(
                "its status is {status}, but the request does not ask for a background answer"
            );
            return Err(AnswerError::malformed(what, whole(&response)));
        }
        // The status is `completed` or `incomplete`, or is missing, because some services omit it.
        Some(_) | None => {}
    }
    let output = match take(&mut response, "output") {
        Some(output) => output
            .parse()
            .map_err(|_| AnswerError::malformed("its output is not a list", output.get()))?,
        None if items.is_empty() => {
            return Err(AnswerError::malformed("it has no output", whole(&response)));
        }
        None => Vec::new(),
    };
    let output: Vec<RawJson> = if output.len() < items.len() { items } else { output };
    let mut messages = messages(&output)?;
    if runs_custom_tools(context) {
        messages.iter_mut().flat_map(|message| &mut message.parts).for_each(note_custom_call);
    }
    let finish = finish(response, &messages, context);
    note_free_texts(&mut messages, &finish, |call| kind_of(call).item == CUSTOM);
    Ok(Answer::new(messages.into_iter().map(Into::into).collect(), finish))
}

/// Returns whether the service is xAI. Its calls of custom tools (whose input is free text) are
/// calls of its own search tools, and the tools of clients are always functions
/// (<https://docs.x.ai/developers/tools/overview>).
pub(super) fn runs_custom_tools(context: &AnswerContext) -> bool {
    context.issuer.as_deref() == Some("xai")
}

/// Marks a call of a custom tool as provider-executed.
fn note_custom_call(part: &mut Part) {
    if let Part::ToolCall(call) = part
        && kind_of(call).item == CUSTOM
    {
        (call.provider_executed, call.is_cut_off) = (true, false);
    }
}

fn messages(output: &[RawJson]) -> Result<Vec<Message>, AnswerError> {
    let list = raw(output);
    parse_input(list.get()).map_err(|source| AnswerError::unreadable(source, list.get()))
}

/// Returns the answer for a response in progress, without messages.
fn pending_answer(response: Object, context: &AnswerContext) -> Result<Answer, AnswerError> {
    let id = text(&response, "id").ok_or_else(|| {
        AnswerError::malformed(
            "the answer is in progress, but its id is missing",
            raw(&response).get(),
        )
    })?;
    let history_owner = match &context.history {
        Some(location) => location.service_id_during(&response),
        None => None,
    };
    let mut finish = finish(response, &[], context);
    finish.reason = None;
    finish.history_owner = history_owner;
    finish.continuation = Some(id);
    Ok(Answer::new(Vec::new(), finish))
}

fn finish(mut response: Object, messages: &[Message], context: &AnswerContext) -> Finish {
    let mut finish = Finish::new(reason(&response, messages));
    finish.history_owner = match &context.history {
        Some(location) => location.service_id_after(&response),
        None => history::service_id_in(&response),
    };
    finish.model = take_text(&mut response, "model").filter(|model| !model.is_empty());
    response.remove("object");
    response.remove("output");
    finish.metadata = metadata(&response);
    finish.usage = finish.metadata.get("usage").map(usage).unwrap_or_default();
    finish
}

/// Returns the finish reason. Only an incomplete response contains one.
fn reason(response: &Object, messages: &[Message]) -> FinishReason {
    let details = response.get("incomplete_details").map(to_value).unwrap_or_default();
    let details = details.get("reason").and_then(Value::as_str);
    let is_incomplete = text(response, "status").is_some_and(|status| status == "incomplete");
    if is_incomplete || details.is_some() {
        return match details {
            Some("max_output_tokens" | "max_tokens") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            other => FinishReason::Other(other.unwrap_or("incomplete").to_owned()),
        };
    }
    let has_calls = messages.iter().any(|message| message.calls().next().is_some());
    if has_calls { FinishReason::ToolCalls } else { FinishReason::Stop }
}

pub(crate) fn usage(json: &Value) -> Usage {
    let total = json.get("total_tokens").and_then(Value::as_u64);
    let count = |pointer| json.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let mut usage = Usage::new(count("/input_tokens"), count("/output_tokens"));
    usage.cached_input_tokens = count("/input_tokens_details/cached_tokens");
    usage.reasoning_tokens = count("/output_tokens_details/reasoning_tokens");
    with_separate_reasoning(usage, total)
}
