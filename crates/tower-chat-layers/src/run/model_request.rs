//! Separates and joins the messages of a request, and removes the sentinel history owner from an
//! answer.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatRequest, HistoryOwner, Message, Messages};

/// Returns the request's own messages, without the messages that a layer above has put before the
/// input.
pub(super) fn own_messages(request: &ChatRequest) -> Vec<Arc<Message>> {
    request.messages().iter_from(request.history_len()).cloned().collect()
}

/// Returns `messages` after `prefix`, the messages that a layer above has put before the input.
pub(super) fn joined(prefix: Messages, messages: Messages) -> Messages {
    if prefix.is_empty() {
        return messages;
    }
    let mut all = prefix;
    all.append(&messages);
    all
}

/// Removes the sentinel [`HistoryOwner::Local`], which only the tool loop may receive.
pub(crate) fn strip_sentinel(answer: &mut Answer) {
    if answer.finish.history_owner == Some(HistoryOwner::Local) {
        answer.finish.history_owner = None;
    }
}
