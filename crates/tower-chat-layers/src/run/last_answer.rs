//! The last answer in a list of messages.

use std::sync::Arc;

use tower_chat_core::{Message, Role};

/// Returns the assistant messages at the end of `messages`.
pub(super) fn response_at_end(messages: &[Arc<Message>]) -> &[Arc<Message>] {
    let is_response = |message: &&Arc<Message>| message.role == Role::Assistant;
    let first = messages.len() - messages.iter().rev().take_while(is_response).count();
    messages.get(first..).unwrap_or_default()
}

/// Returns the messages after the last answer.
pub(super) fn after_last_answer(messages: &[Arc<Message>]) -> &[Arc<Message>] {
    let last = messages.iter().rposition(|message| message.role == Role::Assistant);
    messages.get(last.map_or(0, |last| last + 1)..).unwrap_or_default()
}
