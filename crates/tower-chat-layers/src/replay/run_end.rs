//! Reads and writes the marks that stored messages contain about the end of their run.
//!
//! A run that ends with a final answer without calls needs no mark. Each other run that ends
//! intentionally is marked by its last write, because a replay would otherwise report its calls
//! without results as interrupted:
//! - in the metadata of the last answer, if the calls of this answer are returned to the caller or
//!   not run;
//! - in the result of a tool, if this tool ended the run.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{
    EndedBy, Message, Part, Role,
    pairing::{RUN_ENDED, is_marked_ended},
};

/// The metadata key for the ids of calls that have run, but whose results the `persist` hooks did
/// not allow to be stored. The replay does not report these calls as interrupted.
const RESULTS_NOT_KEPT: &str = "results_not_kept";

pub(crate) fn mark_not_kept(message: &mut Arc<Message>, call_ids: Vec<Value>) {
    if !call_ids.is_empty() {
        let metadata = &mut Arc::make_mut(message).metadata;
        metadata.insert(RESULTS_NOT_KEPT.to_owned(), Value::Array(call_ids));
    }
}

/// Returns the ids of the calls whose results were removed from a message of results.
pub(crate) fn forgotten_ids(message: &Message) -> impl Iterator<Item = &str> {
    let ids = message.metadata.get(RESULTS_NOT_KEPT).and_then(Value::as_array);
    ids.into_iter().flatten().filter_map(Value::as_str)
}

pub(crate) fn has_results_not_kept(message: &Message) -> bool {
    message.metadata.contains_key(RESULTS_NOT_KEPT)
}

/// Marks a message as the last message of a run that ended intentionally.
pub(crate) fn mark_ended(message: &mut Arc<Message>) {
    Arc::make_mut(message).metadata.insert(RUN_ENDED.to_owned(), Value::Bool(true));
}

/// The metadata key for the reason for which a run ended, in the last stored message of the run.
/// Only a stop and the limit of rounds are stored under this key.
const ENDED_BY: &str = "ended_by";

const STOP: &str = "stop";
const TOOL: &str = "tool";
const ROUND_LIMIT: &str = "round_limit";

pub(crate) fn mark_ended_by(message: &mut Arc<Message>, ended_by: EndedBy) {
    let name = match ended_by {
        EndedBy::Stop => STOP,
        EndedBy::RoundLimit => ROUND_LIMIT,
        // Usually, no message contains the result that has ended the run.
        EndedBy::Tool if !message.results().any(|result| result.ends_run) => TOOL,
        _ => return,
    };
    Arc::make_mut(message).metadata.insert(ENDED_BY.to_owned(), Value::from(name));
}

pub(crate) fn ended_by(message: &Message) -> Option<EndedBy> {
    match message.metadata.get(ENDED_BY).and_then(Value::as_str) {
        Some(STOP) => Some(EndedBy::Stop),
        Some(ROUND_LIMIT) => Some(EndedBy::RoundLimit),
        Some(TOOL) => Some(EndedBy::Tool),
        Some(_) | None => message.results().any(|result| result.ends_run).then_some(EndedBy::Tool),
    }
}

/// Returns whether a message has a mark with the reason for which its run ended.
pub(super) fn has_end_reason(message: &Message) -> bool {
    message.metadata.contains_key(ENDED_BY)
}

/// Returns the message without marks. The caller of the run received this message.
pub(crate) fn without_mark(message: &Arc<Message>) -> Arc<Message> {
    let mut message = message.clone();
    if is_marked_ended(&message) {
        Arc::make_mut(&mut message).metadata.remove(RUN_ENDED);
    }
    if message.metadata.contains_key(ENDED_BY) {
        Arc::make_mut(&mut message).metadata.remove(ENDED_BY);
    }
    message
}

/// Returns a message without parts that marks the intentional end of a run in which no other
/// message can have the mark. Replays omit it.
pub(crate) fn end_marker() -> Message {
    let mut marker = Arc::new(Message::new(Role::Assistant, Vec::new()));
    mark_ended(&mut marker);
    Arc::unwrap_or_clone(marker)
}

pub(crate) fn is_end_marker(message: &Message) -> bool {
    message.parts.is_empty() && is_marked_ended(message)
}

/// Returns whether a message shows that its run ended intentionally, so that its calls without
/// results were not interrupted.
pub(super) fn ends_with_open_calls(message: &Message) -> bool {
    is_marked_ended(message)
        || message.results().any(|result| result.ends_run)
        || message.parts.iter().any(|part| matches!(part, Part::ApprovalRequest(_)))
}
