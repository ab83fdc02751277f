//! Builds the request for the model client: the history, followed by the new messages of a request.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatRequest, HistoryOwner, Message, Messages};

/// Returns the request's own messages, without the messages that a layer above put before them.
pub(super) fn own_messages(request: &ChatRequest) -> Vec<Arc<Message>> {
    request.messages().iter_from(request.history_len()).cloned().collect()
}

/// Returns `prefix`, the messages that a layer above put first, followed by `messages`.
pub(super) fn joined(prefix: Messages, messages: Messages) -> Messages {
    if prefix.is_empty() {
        return messages;
    }
    let mut all = prefix;
    all.append(&messages);
    all
}

/// Removes the sentinel from an answer, because only the tool loop may receive it.
pub(crate) fn strip_sentinel(answer: &mut Answer) {
    if answer.finish.history_owner == Some(HistoryOwner::Local) {
        answer.finish.history_owner = None;
    }
}
