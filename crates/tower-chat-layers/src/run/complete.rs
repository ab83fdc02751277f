//! Determines whether the messages of a run are complete.

use std::sync::Arc;

use tower_chat_core::{
    Message, MessageId, Part, Role, RunId, ToolResult, pairing::is_marked_ended,
};

use super::{
    last_answer::response_at_end, partial_text::is_marked_interrupted, redact::is_without_calls,
};
use crate::{
    next_step::{is_paused, pending_calls},
    replay::{is_end_marker, without_mark},
};

/// Returns whether a run is complete: whether it ends with a final answer, with requests for
/// approval, or with the mark of another intentional end. `answer` contains the stored messages
/// after the input.
pub(super) fn is_complete(answer: &[Arc<Message>]) -> bool {
    let Some(last) = answer.last() else { return false };
    if last.role == Role::Tool {
        let results = answer.iter().rev().take_while(|message| message.role == Role::Tool);
        return results.flat_map(|message| message.results()).any(|result| result.ends_run);
    }
    let response = response_at_end(answer);
    let is_request = |part: &Part| matches!(part, Part::ApprovalRequest(_));
    let ends =
        |message: &Arc<Message>| is_marked_ended(message) || message.parts.iter().any(is_request);
    response.iter().any(ends)
        || (!response.is_empty()
            && !last.id.is_some_and(|id| is_incomplete_response(last, id.run))
            && !is_paused(response)
            && pending_calls(response).is_empty())
}

/// Returns whether `written` begins with an assistant message although calls at the end of `added`
/// have no results.
pub(super) fn follows_open_calls(added: &[Arc<Message>], written: &[Arc<Message>]) -> bool {
    written.first().is_some_and(|first| first.role == Role::Assistant)
        && !pending_calls(response_at_end(added)).is_empty()
}

/// Returns the messages of a complete run as the caller received them: with results that only the
/// record contains, and without end markers and partial responses before other messages.
pub(super) fn as_answered(
    answer: &[Arc<Message>],
    recorded: Option<&[ToolResult]>,
    next: MessageId,
) -> Vec<Arc<Message>> {
    let last = answer.len().saturating_sub(1);
    let is_answer = |(position, message): &(usize, &Arc<Message>)| {
        let is_left = message.id.is_some() && is_marked_interrupted(message);
        (*position == last || !is_left) && !is_end_marker(message)
    };
    let visible = answer.iter().enumerate().filter(is_answer);
    let mut messages: Vec<_> = visible.map(|(_, message)| without_mark(message)).collect();
    if let Some(results) = recorded.filter(|results| !results.is_empty()) {
        let mut message = Message::tool_results(results.iter().cloned());
        message.id = Some(next);
        messages.push(Arc::new(message));
    }
    messages
}

/// Returns whether a message is a partial response of `run`, or a response whose calls hooks have
/// removed. While `run` continues, its incomplete responses are not sent to the model.
pub(super) fn is_incomplete_response(message: &Message, run: RunId) -> bool {
    let is_of_run = message.id.is_some_and(|id| id.run == run);
    is_of_run && (is_marked_interrupted(message) || is_without_calls(message))
}
