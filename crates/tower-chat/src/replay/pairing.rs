//! Which call a result answers: the call that it names by position, else by its id among the calls
//! of its round, else by its place.

use tower_chat_core::{CallPosition, Part, ToolCall, ToolResult};

/// A call that may be answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) call: &'a ToolCall,
    /// Where it is stored; `None` where no result can name it so.
    pub(super) position: Option<CallPosition>,
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
    if let Some(named) = result.call {
        let found = calls.enumerate().find(|(_, asked)| asked.position == Some(named));
        return match found {
            Some((_, Asked { is_answered: true, .. })) => Answers::Again,
            Some((index, _)) => Answers::Call(index),
            None => Answers::Nothing,
        };
    }
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

/// What each result of a round is to the calls of the round, which begin with those of the
/// answer's first message; those of its last message that asks begin at `last`.
///
/// Results that name their call by position are taken first. If the others fit the calls of the
/// last message, they answer those: a run that was interrupted before its tools ran, and was then
/// sent again, leaves the calls of the message before without a result. Otherwise they answer the
/// calls of all messages in order.
pub(super) fn pair_round(
    calls: &mut [Asked<'_>],
    last: usize,
    results: &[&ToolResult],
) -> Vec<Answers> {
    let mut paired = vec![Answers::Nothing; results.len()];
    let numbered = || results.iter().zip(0..);
    for (result, place) in numbered().filter(|(result, _)| result.call.is_some()) {
        set(&mut paired, place, answer_next(result, calls));
    }
    let by_id = || numbered().filter(|(result, _)| result.call.is_none());
    if last > 0
        && let Some(of_last) = calls.get(last..)
    {
        let mut of_last = of_last.to_vec();
        let found: Vec<_> = by_id().map(|(result, _)| answer_next(result, &mut of_last)).collect();
        if found.iter().all(|found| matches!(found, Answers::Call(_))) {
            for ((_, place), found) in by_id().zip(found) {
                let Answers::Call(index) = found else { continue };
                mark(calls, last + index);
                set(&mut paired, place, Answers::Call(last + index));
            }
            return paired;
        }
    }
    for (result, place) in by_id() {
        set(&mut paired, place, answer_next(result, calls));
    }
    paired
}

fn set(paired: &mut [Answers], place: usize, found: Answers) {
    if let Some(slot) = paired.get_mut(place) {
        *slot = found;
    }
}

/// What a result is to the calls; the call that it answers is answered from now on.
fn answer_next(result: &ToolResult, calls: &mut [Asked<'_>]) -> Answers {
    let found = answers(result, calls.iter().copied());
    if let Answers::Call(index) = found {
        mark(calls, index);
    }
    found
}

fn mark(calls: &mut [Asked<'_>], index: usize) {
    if let Some(call) = calls.get_mut(index) {
        call.is_answered = true;
    }
}

/// Whether a result names a call: by the id by which it is answered, or, as the calls of one answer
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
