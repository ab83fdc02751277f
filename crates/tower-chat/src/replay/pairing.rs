//! Which call a result answers: by its id among the calls of its round, else by its place.

use tower_chat_core::{Part, ToolCall, ToolResult};

/// A call that may be answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) call: &'a ToolCall,
    /// The id by which it is answered; see [`effective_call_ids`](super::effective_call_ids).
    pub(super) id: &'a str,
    pub(super) is_answered: bool,
}

/// What a result is to the calls of its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// The answer of the call at this place.
    Call(usize),
    /// One more answer of a call that has one; it says nothing new.
    Again,
    /// The answer of none of them.
    Nothing,
}

/// What a result is to the calls of its round.
pub(super) fn answers<'a>(
    result: &ToolResult,
    calls: impl Iterator<Item = Asked<'a>> + Clone,
) -> Answers {
    let is_named = |asked: &Asked<'a>| is_named(result, asked.call, asked.id);
    let is_known = calls.clone().any(|asked| is_named(&asked));
    let free = calls.enumerate().find(|(_, asked)| {
        !asked.is_answered
            && if is_known { is_named(asked) } else { may_answer(result, asked.call) }
    });
    match free {
        Some((index, _)) => Answers::Call(index),
        None if is_known => Answers::Again,
        None => Answers::Nothing,
    }
}

/// Whether a result names a call: by the id by which it is answered, or, as the calls of one message
/// may have come with the same id, by the one it came with.
pub(super) fn is_named(result: &ToolResult, call: &ToolCall, id: &str) -> bool {
    names(result, id) || call.id.as_deref().is_some_and(|id| names(result, id))
}

/// Whether a result names the call that is answered by this id.
pub(super) fn names(result: &ToolResult, id: &str) -> bool {
    result.call_id.as_deref().is_some_and(|named| !named.is_empty() && named == id)
}

/// Whether a result that names no call of its round may be this call's, by its place: one of
/// the two came without an id, and the names do not speak against it.
fn may_answer(result: &ToolResult, call: &ToolCall) -> bool {
    let is_empty = |id: &Option<String>| id.as_deref().unwrap_or_default().is_empty();
    let names_agree = result.name.as_ref().is_none_or(|name| *name == call.name);
    (is_empty(&call.id) || is_empty(&result.call_id)) && names_agree
}

/// The call of a part that owes, or will owe, a result.
pub(super) fn owed_call(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some(call),
        Part::ApprovalRequest(request) => Some(&request.call),
        _ => None,
    }
}
