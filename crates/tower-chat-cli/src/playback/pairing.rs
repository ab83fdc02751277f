//! Which result answers which call of a round.

use tower_chat::{ToolCall, ToolResult};

/// For each result, the position of the call it answers among the calls; `None` if it answers none.
///
/// A result that names a call of the round by its id answers the first of that id that has no
/// answer yet. One that names none goes by position: to the first call without an answer, where one of
/// the two has no id and a recorded name does not speak against it.
pub(super) fn pair(calls: &[ToolCall], results: &[ToolResult]) -> Vec<Option<usize>> {
    let mut is_answered = vec![false; calls.len()];
    let mut answers = |result: &ToolResult| {
        let names = |call: &ToolCall| has_text(&result.call_id) && result.call_id == call.id;
        let is_named = calls.iter().any(names);
        let fits = |call: &ToolCall| {
            if is_named {
                return names(call);
            }
            (!has_text(&call.id) || !has_text(&result.call_id))
                && result.name.as_ref().is_none_or(|name| *name == call.name)
        };
        let free = calls.iter().zip(&is_answered).position(|(call, done)| !done && fits(call))?;
        if let Some(done) = is_answered.get_mut(free) {
            *done = true;
        }
        Some(free)
    };
    results.iter().map(&mut answers).collect()
}

/// Whether there is an id, and it is not empty.
pub(super) fn has_text(id: &Option<String>) -> bool {
    id.as_deref().is_some_and(|id| !id.is_empty())
}
