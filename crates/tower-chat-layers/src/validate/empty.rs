//! Detects requests without content.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, Message, Role, RunHandle};

use super::{Fault, InvalidMessages, InvalidRequest};

/// Checks the content of a request to a tool loop without a persistence layer above it. The request
/// must contain messages, unless it [may be empty](may_be_empty), and the messages after the last
/// assistant message must have content.
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

/// Checks that all messages except assistant messages have content. A replay would omit a message
/// without content, and the next request could then begin with an assistant message, which
/// providers refuse. `first` is the position of the first message.
pub(crate) fn check_content<'a>(
    first: usize,
    messages: impl IntoIterator<Item = &'a Arc<Message>>,
) -> Result<(), InvalidMessages> {
    let is_empty = |message: &Message| message.role != Role::Assistant && message.parts.is_empty();
    let empty = (first..).zip(messages).filter(|(_, message)| is_empty(message));
    InvalidMessages::of(empty.map(|(message, _)| Fault::EmptyMessage { message }).collect())
}

/// Returns whether a request may contain no messages, because it continues a background answer, or
/// because the run handle contains queued messages.
pub(crate) fn may_be_empty(request: &ChatRequest) -> bool {
    let handle = request.extensions.get::<RunHandle>();
    request.options.continuation.is_some() || handle.is_some_and(RunHandle::has_queued)
}
