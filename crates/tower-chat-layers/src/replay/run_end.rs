//! What stored messages say of how their run ended.
//!
//! A plain final answer says by itself that its run is complete. A run that ends on purpose in
//! another way says so in what its last write stores: in the metadata of the answer whose calls are
//! returned to the caller or not run any more, or in the result of the tool that ended it.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{
    EndedBy, Message, Part, Role,
    pairing::{RUN_ENDED, is_marked_ended},
};

/// The key of the metadata of stored messages of results under which the ids of the calls stand
/// whose results hooks did not let be stored: they were answered, and not interrupted.
const RESULTS_NOT_KEPT: &str = "results_not_kept";

/// Says in a message of results that it held results of these calls, which were not to be stored.
pub(crate) fn mark_not_kept(message: &mut Arc<Message>, call_ids: Vec<Value>) {
    if !call_ids.is_empty() {
        let metadata = &mut Arc::make_mut(message).metadata;
        metadata.insert(RESULTS_NOT_KEPT.to_owned(), Value::Array(call_ids));
    }
}

/// The ids of the calls of which a message of results held one that was not to be stored.
pub(crate) fn forgotten_ids(message: &Message) -> impl Iterator<Item = &str> {
    let ids = message.metadata.get(RESULTS_NOT_KEPT).and_then(Value::as_array);
    ids.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether something of a message of results was not to be stored.
pub(crate) fn has_results_not_kept(message: &Message) -> bool {
    message.metadata.contains_key(RESULTS_NOT_KEPT)
}

/// Says in a message that its run ended with it.
pub(crate) fn mark_ended(message: &mut Arc<Message>) {
    Arc::make_mut(message).metadata.insert(RUN_ENDED.to_owned(), Value::Bool(true));
}

/// The key of the metadata of the last stored message of a run that says what has ended the run,
/// where the message itself does not show it.
const ENDED_BY: &str = "ended_by";

const STOP: &str = "stop";
const ROUND_LIMIT: &str = "round_limit";

/// Says in the last message of a run what has ended the run.
pub(crate) fn mark_ended_by(message: &mut Arc<Message>, ended_by: EndedBy) {
    let name = match ended_by {
        EndedBy::Stop => STOP,
        EndedBy::RoundLimit => ROUND_LIMIT,
        // Its result says so.
        _ => return,
    };
    Arc::make_mut(message).metadata.insert(ENDED_BY.to_owned(), Value::from(name));
}

/// What has ended the run of which this is the last stored message, as far as it says so.
pub(crate) fn ended_by(message: &Message) -> Option<EndedBy> {
    match message.metadata.get(ENDED_BY).and_then(Value::as_str) {
        Some(STOP) => Some(EndedBy::Stop),
        Some(ROUND_LIMIT) => Some(EndedBy::RoundLimit),
        Some(_) | None => message.results().any(|result| result.ends_run).then_some(EndedBy::Tool),
    }
}

/// The message as the caller of the run got it.
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

/// A message without parts, for a run whose end nothing else in the store would show. Replays
/// leave it out.
pub(crate) fn end_marker() -> Message {
    let mut marker = Arc::new(Message::new(Role::Assistant, Vec::new()));
    mark_ended(&mut marker);
    Arc::unwrap_or_clone(marker)
}

/// Whether a message is nothing but an [`end_marker`].
pub(crate) fn is_end_marker(message: &Message) -> bool {
    message.parts.is_empty() && is_marked_ended(message)
}

/// Whether a message shows that the run ended on purpose with calls that it left without results.
pub(super) fn ends_with_open_calls(message: &Message) -> bool {
    is_marked_ended(message)
        || message.results().any(|result| result.ends_run)
        || message.parts.iter().any(|part| matches!(part, Part::ApprovalRequest(_)))
}
