//! Detects requests without content.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, Message, Role, RunHandle};

use super::{Fault, InvalidMessages, InvalidRequest};

/// Checks a request to a tool loop without a persistence layer above it. The request must have
/// messages, unless it [may be empty](may_be_empty). The messages after the model's final answer must
/// have content.
///
/// # Errors
///
/// Returns [`InvalidRequest`].
pub(crate) fn check_not_empty(request: &ChatRequest) -> Result<(), InvalidRequest> {
    let own: Vec<_> = request.messages().iter_from(request.history_len()).collect();
    let is_answer = |message: &&Arc<Message>| message.role == Role::Assistant;
    let first = own.iter().rposition(is_answer).map_or(0, |last| last + 1);
    let checked = match request.messages().is_empty() && !may_be_empty(request) {
        true => InvalidMessages::of(vec![Fault::NoMessages]),
        false => check_content(request.history_len() + first, own.into_iter().skip(first)),
    };
    checked.map_err(|source| InvalidRequest {
        conversation: request.conversation().map(|conversation| conversation.key.clone()),
        source,
    })
}

/// Checks that messages have content, except assistant messages. Positions are counted from `first`.
///
/// # Errors
///
/// Returns all messages without parts. Replay would omit them, and the next request could then begin with
/// an assistant message.
pub(crate) fn check_content<'a>(
    first: usize,
    messages: impl IntoIterator<Item = &'a Arc<Message>>,
) -> Result<(), InvalidMessages> {
    let is_empty = |message: &Message| message.role != Role::Assistant && message.parts.is_empty();
    let empty = (first..).zip(messages).filter(|(_, message)| is_empty(message));
    InvalidMessages::of(empty.map(|(message, _)| Fault::EmptyMessage { message }).collect())
}

/// Returns whether a request may have no messages, because it continues an answer in the background, or
/// because messages are queued for it.
pub(crate) fn may_be_empty(request: &ChatRequest) -> bool {
    let handle = request.extensions.get::<RunHandle>();
    request.options.continuation.is_some() || handle.is_some_and(RunHandle::has_queued)
}
