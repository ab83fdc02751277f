//! The history that a layer has put before the input of a run in a request.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, Message, Messages};

use super::model_request::joined;

/// The messages that a layer has put into the request of a run, because a layer below may not add
/// the history to each service call.
#[derive(Default)]
pub(crate) struct HistoryInRequest {
    /// The messages before the new messages of the request.
    pub(super) history: Messages,
    /// The new messages of the request: the open round of the history, and the input.
    pub(super) new: Messages,
    pub(super) input: Messages,
}

impl HistoryInRequest {
    /// Removes the history from a request that still contains it. If the new messages have the same
    /// ids too, only the input of the run remains, with the changes that a layer in between has
    /// made.
    pub(crate) fn remove_from(&self, request: &mut ChatRequest) {
        let Self { history, new, .. } = self;
        let first = request.history_len().checked_sub(history.len());
        let sent = first.map(|first| (first, request.messages().skip(first)));
        let Some((first, sent)) = sent else { return };
        if (history.is_empty() && new.is_empty()) || !begins_with(&sent, history) {
            return;
        }
        let own = sent.skip(history.len());
        let own = match own.len() == new.len() && begins_with(&own, new) {
            true => self.input_in(&own),
            false => own,
        };
        request.set_messages(joined(request.messages().take(first), own), first);
    }

    /// Returns the input of the run in `own`, whose messages have the same ids and roles as `new`.
    fn input_in(&self, own: &Messages) -> Messages {
        let Self { new, input, .. } = self;
        let is_equal =
            |(one, other): (&Arc<Message>, &Arc<Message>)| Arc::ptr_eq(one, other) || one == other;
        // If a round is open, its messages precede the input, and may contain results of the input.
        let before = new.len().checked_sub(input.len());
        let before = before.filter(|before| begins_with(&new.skip(*before), input));
        match before {
            Some(before) if !own.iter().zip(new.iter()).all(is_equal) => own.skip(before),
            _ => input.clone(),
        }
    }
}

/// Returns whether a list begins with messages of the same ids and roles.
fn begins_with(messages: &Messages, beginning: &Messages) -> bool {
    let is_same =
        |(one, other): (&Arc<Message>, &Arc<Message>)| one.id == other.id && one.role == other.role;
    messages.len() >= beginning.len() && messages.iter().zip(beginning.iter()).all(is_same)
}
