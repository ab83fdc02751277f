//! What a history has of a run that is sent again.

use std::sync::Arc;

use tower_chat_core::{Message, RunId, store::History};

/// The messages of this run that are stored already, because it is sent again, and whether others
/// stand after them.
pub(super) fn added_before(history: &History, run: RunId) -> (Vec<Arc<Message>>, bool) {
    let Some(end) = history.end_of_run(run) else { return (Vec::new(), false) };
    let before = (0..end).rev().map_while(|position| history.messages.get(position));
    let is_of_run = |message: &&Arc<Message>| message.id.is_some_and(|id| id.run == run);
    let mut added: Vec<_> = before.take_while(is_of_run).cloned().collect();
    added.reverse();
    (added, end < history.messages.len())
}
