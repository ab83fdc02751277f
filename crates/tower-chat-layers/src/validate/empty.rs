//! Requests that say nothing.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, Message, Role, RunHandle};

use super::{Fault, InvalidMessages, InvalidRequest};

/// Checks a request to a tool loop that has no persistence layer above it. The request must have
/// messages, and the messages behind the model's last answer must have content.
///
/// # Errors
///
/// [`InvalidRequest`].
pub(crate) fn check_not_empty(request: &ChatRequest) -> Result<(), InvalidRequest> {
    let own: Vec<_> = request.messages.iter_from(request.new_from).collect();
    let is_answer = |message: &&Arc<Message>| message.role == Role::Assistant;
    let first = own.iter().rposition(is_answer).map_or(0, |last| last + 1);
    let checked = match request.messages.is_empty() && !may_be_empty(request) {
        true => InvalidMessages::of(vec![Fault::NoMessages]),
        false => check_content(request.new_from + first, own.into_iter().skip(first)),
    };
    checked.map_err(|source| InvalidRequest {
        conversation: request.conversation().map(|conversation| conversation.key.clone()),
        source,
    })
}

/// Checks that messages have content, but for those of the model. They are counted from `first`.
///
/// # Errors
///
/// All that have no part. Replay would leave them out, and the next request could begin with the model's message.
pub(crate) fn check_content<'a>(
    first: usize,
    messages: impl IntoIterator<Item = &'a Arc<Message>>,
) -> Result<(), InvalidMessages> {
    let is_empty = |message: &Message| message.role != Role::Assistant && message.parts.is_empty();
    let empty = (first..).zip(messages).filter(|(_, message)| is_empty(message));
    InvalidMessages::of(empty.map(|(message, _)| Fault::EmptyMessage { message }).collect())
}

/// Whether a request may have no messages: it continues an answer that is made in the background, or
/// some are queued for it.
pub(crate) fn may_be_empty(request: &ChatRequest) -> bool {
    let handle = request.extensions.get::<RunHandle>();
    request.options.continuation.is_some() || handle.is_some_and(RunHandle::has_queued)
}
