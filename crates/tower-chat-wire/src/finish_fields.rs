//! The reason for which an answer ended, and its usage, as fields of a body.

use serde_json::{Map, Value};
use tower_chat_core::{Finish, FinishReason, Message, Part, Usage};

/// How a wire names the reasons for which answers end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reasons {
    /// The reason that a text of the wire is.
    pub(crate) read: fn(String) -> FinishReason,
    /// The usual text of a reason.
    pub(crate) spell: fn(&FinishReason) -> &str,
}

impl Reasons {
    /// Sets the reason of an answer from the text of the wire.
    ///
    /// On a wire without a reason of its own for calls, a stop with calls ended for them.
    ///
    /// Returns the text where it is not the one that [`text`](Self::text) gives for the same answer,
    /// such as `stop_sequence` for a stop: the caller keeps it in the metadata.
    pub(crate) fn set(self, finish: &mut Finish, text: String, has_calls: bool) -> Option<String> {
        let mut reason = (self.read)(text.clone());
        let has_no_calls_reason =
            (self.spell)(&FinishReason::ToolCalls) == (self.spell)(&FinishReason::Stop);
        if has_calls && has_no_calls_reason && reason == FinishReason::Stop {
            reason = FinishReason::ToolCalls;
        }
        let usual = effective(Some(&reason), has_calls);
        let is_usual = (self.spell)(&usual) == text;
        finish.reason = Some(reason);
        (!is_usual).then_some(text)
    }

    /// The text for the reason of an answer: the one that was received with it, if it still says the
    /// same, or else the usual one.
    pub(crate) fn text(self, finish: &Finish, received: Option<&Value>, has_calls: bool) -> String {
        let received = received.and_then(Value::as_str).map(str::to_owned);
        let is_same = |text: &String| Some((self.read)(text.clone())) == finish.reason;
        received.filter(is_same).unwrap_or_else(|| {
            let usual = effective(finish.reason.as_ref(), has_calls);
            (self.spell)(&usual).to_owned()
        })
    }
}

/// The reason that a reader of the answer acts on: calls are to be answered unless they were cut off.
fn effective(reason: Option<&FinishReason>, has_calls: bool) -> FinishReason {
    match reason {
        Some(FinishReason::Length) => FinishReason::Length,
        Some(FinishReason::ContentFilter) => FinishReason::ContentFilter,
        _ if has_calls => FinishReason::ToolCalls,
        Some(reason) => reason.clone(),
        None => FinishReason::Stop,
    }
}

/// Marks the call with which an answer ends, if a token limit has ended it. On wires whose arguments are an
/// object, those of a call that was cut off can look whole: the object is empty, or closed by the service
/// (<https://docs.claude.com/en/docs/build-with-claude/handling-stop-reasons>).
pub(crate) fn note_cut_off_call(message: &mut Message, finish: &Finish) {
    if finish.reason != Some(FinishReason::Length) {
        return;
    }
    let of_content = message.parts.iter_mut().filter(|part| !matches!(part, Part::Native(_)));
    if let Some(Part::ToolCall(call)) = of_content.last() {
        call.is_cut_off = !call.provider_executed;
    }
}

/// Puts the usage into a body: what was received with the answer stays if it counts the same.
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
