//! Reads and writes the finish reason and the usage of an answer.
//!
//! A wire is a provider's JSON format.

use serde_json::{Map, Value, json};
use tower_chat_core::{Finish, FinishReason, Message, Part, RawJson, ToolCall, Usage};

use crate::object;

/// Converts between the finish reasons of a wire and [`FinishReason`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reasons {
    /// Converts a text of the wire to a finish reason.
    pub(crate) read: fn(String) -> FinishReason,
    /// Returns the usual text for a finish reason.
    pub(crate) spell: fn(&FinishReason) -> &str,
}

impl Reasons {
    /// Converts `text`, the wire's text for a finish reason, to a [`FinishReason`], and sets this
    /// reason in `finish`. On wires that have the same text for a stop and for calls, a stop
    /// becomes [`FinishReason::ToolCalls`] if the answer has calls.
    ///
    /// Returns `text` if it is not the usual text for this finish reason, such as Anthropic's
    /// `stop_sequence` for a stop. The caller must store it in the metadata of the answer, and pass
    /// it to [`text`](Self::text) when the answer is written.
    pub(crate) fn set(self, finish: &mut Finish, text: String, has_calls: bool) -> Option<String> {
        let mut reason = (self.read)(text.clone());
        let has_no_calls_reason =
            (self.spell)(&FinishReason::ToolCalls) == (self.spell)(&FinishReason::Stop);
        if has_calls && has_no_calls_reason && reason == FinishReason::Stop {
            reason = FinishReason::ToolCalls;
        }
        let usual = effective_reason(Some(&reason), has_calls);
        let is_usual = (self.spell)(&usual) == text;
        finish.reason = Some(reason);
        (!is_usual).then_some(text)
    }

    /// Returns the text for the finish reason of an answer: the `received` text, if it still means
    /// this finish reason, and otherwise the usual text.
    pub(crate) fn text(self, finish: &Finish, received: Option<&Value>, has_calls: bool) -> String {
        let received = received.and_then(Value::as_str).map(str::to_owned);
        let is_same = |text: &String| Some((self.read)(text.clone())) == finish.reason;
        received.filter(is_same).unwrap_or_else(|| {
            let usual = effective_reason(finish.reason.as_ref(), has_calls);
            (self.spell)(&usual).to_owned()
        })
    }
}

/// Returns [`FinishReason::ToolCalls`] for an answer with calls, unless a limit or a filter ended
/// the answer. Returns the reason unchanged for other answers, and a stop if there is no reason.
fn effective_reason(reason: Option<&FinishReason>, has_calls: bool) -> FinishReason {
    match reason {
        Some(FinishReason::Length) => FinishReason::Length,
        Some(FinishReason::ContentFilter) => FinishReason::ContentFilter,
        _ if has_calls => FinishReason::ToolCalls,
        Some(reason) => reason.clone(),
        None => FinishReason::Stop,
    }
}

/// Returns whether an answer with this finish reason may end with an incomplete call.
fn may_cut_off(finish: &Finish) -> bool {
    match &finish.reason {
        Some(FinishReason::Length | FinishReason::ContentFilter) => true,
        // For example `malformed_tool_use` of Bedrock, or `MALFORMED_FUNCTION_CALL` of Gemini.
        Some(FinishReason::Other(reason)) => reason.to_ascii_lowercase().starts_with("malformed"),
        _ => false,
    }
}

/// Marks a call at the end of an answer as cut off if the finish reason allows an incomplete call.
/// For wires that send arguments as a JSON object: the object does not show that a call is
/// incomplete, because the service sends an empty object or adds the missing end
/// (<https://docs.claude.com/en/docs/build-with-claude/handling-stop-reasons>).
pub(crate) fn note_cut_off_call(message: &mut Message, finish: &Finish) {
    if may_cut_off(finish)
        && let Some(call) = last_call(message)
    {
        call.is_cut_off = !call.provider_executed;
    }
}

/// Marks a call without arguments at the end of an answer as cut off if the finish reason allows an
/// incomplete call. For wires that send each call as a whole: a service may send an empty object
/// instead of the arguments of an incomplete call.
pub(crate) fn note_empty_call(message: &mut Message, finish: &Finish) {
    if may_cut_off(finish)
        && let Some(call) = last_call(message)
        && (call.arguments.trim().is_empty()
            || call.parse_arguments().is_ok_and(|arguments: Value| arguments == json!({})))
    {
        call.is_cut_off = !call.provider_executed;
    }
}

/// Marks the calls that were cut off in an answer with free-text calls, whose arguments need not be
/// JSON. Does nothing unless a token limit or a filter ended the answer.
///
/// - A free-text call is marked if it is at the end of the answer, and the service has not declared
///   it complete.
/// - Any other call is marked if its arguments are `null` or not valid JSON.
///
/// Also sets the finish reason of the last message, so that [`Answer::new`] does not search for
/// calls that were cut off: it would take a free-text call without valid JSON for incomplete.
///
/// [`Answer::new`]: tower_chat_core::Answer::new
pub(crate) fn note_free_texts(
    messages: &mut [Message],
    finish: &Finish,
    has_free_text: impl Fn(&ToolCall) -> bool,
) {
    let is_ended =
        matches!(finish.reason, Some(FinishReason::Length | FinishReason::ContentFilter));
    let is_free = |call: &ToolCall| !call.provider_executed && has_free_text(call);
    if !is_ended || !messages.iter().flat_map(Message::calls).any(is_free) {
        return;
    }
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::ToolCall(call) = part
            && !has_free_text(call)
        {
            call.is_cut_off |= !call.provider_executed && is_incomplete(call);
        }
    }
    let Some(last) = messages.last_mut() else { return };
    if let Some(call) = last_call(last)
        && has_free_text(call)
    {
        call.is_cut_off |= !call.provider_executed && !is_marked_complete(call);
    }
    last.finish_reason.clone_from(&finish.reason);
}

/// Returns whether the arguments of a call are `null` or are not valid JSON.
fn is_incomplete(call: &ToolCall) -> bool {
    let arguments = call.arguments.trim();
    arguments == "null" || arguments.parse::<RawJson>().is_err()
}

/// Returns whether the service has declared a call complete, in the `status` of its item.
fn is_marked_complete(call: &ToolCall) -> bool {
    let item = call.native.as_ref().map(|native| object::to_value(&native.item));
    item.is_some_and(|item| item.get("status").is_some_and(|status| status == "completed"))
}

/// Returns the last part of a message, if the part is a call. Native parts are ignored.
fn last_call(message: &mut Message) -> Option<&mut ToolCall> {
    let of_content = message.parts.iter_mut().filter(|part| !matches!(part, Part::Native(_)));
    match of_content.last() {
        Some(Part::ToolCall(call)) => Some(call),
        _ => None,
    }
}

/// Sets the usage in a body. If the body already contains a usage with the same counts, leaves it
/// unchanged, because it was received with the answer and may have more fields.
pub(crate) fn put_usage(
    body: &mut Map<String, Value>,
    field: &str,
    usage: &Usage,
    read: fn(&Value) -> Usage,
    write: fn(&Usage) -> Value,
) {
    if body.get(field).map(read).as_ref() != Some(usage) {
        body.insert(field.to_owned(), write(usage));
    }
}
