//! Builds the request for the model client: the history, followed by the new messages of a request.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, HistoryOwner, Message, Messages};

use super::{PersisterAbove, RunLog};
use crate::replay::Replay;

impl RunLog {
    /// Builds the model client's request: the history first, and without extensions for these layers.
    /// `unsent` is the number of the run's messages that no service call has sent yet, stored or not.
    pub(super) fn address_model(&self, request: &mut ChatRequest, replay: &Replay, unsent: usize) {
        let mut prefix = request.messages.take(request.new_from);
        if prefix.is_empty() && self.conversation.service_id.is_none() {
            prefix = self.calls.above.clone();
        }
        let messages = if self.conversation.service_id.is_some() {
            // A retry sends all messages again, although some of them may be stored already.
            let mut own = Replay::lenient();
            own_messages(request).iter().for_each(|message| own.push(message));
            request.new_from = prefix.len();
            own.view()
        } else {
            let view = replay.view();
            request.new_from = (prefix.len() + view.len()).saturating_sub(unsent);
            view
        };
        request.messages = joined(prefix, messages);
        request.history_owner = self.conversation.service_id.clone().map(HistoryOwner::Service);
        request.extensions.insert(PersisterAbove);
    }
}

/// Returns the request's own messages, without the messages that a layer above put before them.
pub(super) fn own_messages(request: &ChatRequest) -> Vec<Arc<Message>> {
    request.messages.iter_from(request.new_from).cloned().collect()
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
