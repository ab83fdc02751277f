//! Looks up stored calls and messages by their ids and positions.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    Message, MessageId, Part, Role, RunId, pairing::AnswerIds, store::SequencePosition,
};

use super::{
    call_cache::{CallOfMessage, MessageWithCalls},
    call_records::{CallRecords, StoredPosition},
    conversation::LoadedConversation,
    stored_messages::find,
};
use crate::tool::CallOfRun;

impl CallRecords {
    /// Returns the position of a call of the conversation among the stored calls. `None` if the
    /// call is not stored.
    pub(super) fn stored_position(
        &self,
        conversation: &LoadedConversation,
        (message, index): (MessageId, usize),
    ) -> Option<StoredPosition> {
        if let Some(asking) = self.asking(message) {
            let index = (*asking.stored.get(index)?)?;
            let call = SequencePosition { sequence: asking.sequence, index };
            return Some(StoredPosition { call, round_index: asking.round_index });
        }
        let position = conversation.position_in_history(message)?;
        let round_index = conversation.round_in_history(position);
        let call = SequencePosition {
            sequence: conversation.skipped + position as u64 + 1,
            index: u32::try_from(index).ok()?,
        };
        Some(StoredPosition { call, round_index })
    }

    /// Returns a call of the conversation. `messages` are about to be stored.
    pub(super) fn call_of_conversation(
        &self,
        conversation: &LoadedConversation,
        (id, index): CallOfRun,
        messages: &[Arc<Message>],
    ) -> Option<CallOfMessage> {
        let known = self.call_cache.0.borrow().get(&id).cloned();
        let with_calls = match known {
            Some(known) => known,
            None => {
                let with_calls = conversation.messages_with_calls(id, messages)?;
                let found = with_calls.get(&id).cloned();
                *self.call_cache.0.borrow_mut() = with_calls;
                found?
            }
        };
        let (call, waits_for_approval) =
            match with_calls.message.parts.get(*with_calls.parts.get(index)?)? {
                Part::ToolCall(call) => (call, false),
                Part::ApprovalRequest(request) => (&request.call, true),
                _ => return None,
            };
        let call_id = with_calls.ids.get(index)?.clone();
        Some(CallOfMessage { call: call.clone(), call_id, waits_for_approval })
    }
}

impl LoadedConversation {
    /// Returns the index of a message in the loaded history. If two messages have the same id, the
    /// later one.
    pub(super) fn position_in_history(&self, id: MessageId) -> Option<usize> {
        self.index.position(&self.history, id)
    }

    /// Returns the index of the round that a message of the loaded history belongs to.
    pub(super) fn round_in_history(&self, position: usize) -> u32 {
        self.index.round(&self.history, position)
    }

    pub(super) fn stored_message(&self, id: MessageId) -> Option<&Arc<Message>> {
        let added = find(self.added.as_slice(), id).map(|(_, message)| message);
        added.or_else(|| self.history.get(self.position_in_history(id)?))
    }

    /// Returns all messages of the answer that contains the message `id`.
    fn messages_with_calls(
        &self,
        id: MessageId,
        messages: &[Arc<Message>],
    ) -> Option<HashMap<MessageId, Arc<MessageWithCalls>>> {
        let (added, history) = (self.added.as_slice(), &self.history);
        let answer = if let Some((position, _)) = find(messages, id) {
            let (before, from) = messages.split_at(position);
            answer_of(id.run, before.iter().rev().chain(added.iter().rev()), from)
        } else if let Some((position, _)) = find(added, id) {
            let (before, from) = added.split_at(position);
            answer_of(id.run, before.iter().rev(), from)
        } else {
            let position = self.position_in_history(id)?;
            answer_of(id.run, history.take(position).iter().rev(), history.iter_from(position))
        };
        let mut ids = AnswerIds::default();
        let with_calls = answer.into_iter().filter_map(|message| {
            let ids = ids.next(&message).into_iter().map(|id| id.into_owned()).collect();
            let is_call = |part: &Part| match part {
                Part::ToolCall(call) => !call.provider_executed,
                part => matches!(part, Part::ApprovalRequest(_)),
            };
            let parts = message.parts.iter().enumerate().filter(|(_, part)| is_call(part));
            let parts = parts.map(|(index, _)| index).collect();
            Some((message.id?, Arc::new(MessageWithCalls { message, parts, ids })))
        });
        Some(with_calls.collect())
    }
}

/// Returns the consecutive assistant messages of a run around a position. `before` is in reverse
/// order.
fn answer_of<'m>(
    run: RunId,
    before: impl IntoIterator<Item = &'m Arc<Message>>,
    from: impl IntoIterator<Item = &'m Arc<Message>>,
) -> Vec<Arc<Message>> {
    let is_of_answer = |message: &&Arc<Message>| {
        message.role == Role::Assistant && message.id.is_some_and(|id| id.run == run)
    };
    let mut answer: Vec<_> = before.into_iter().take_while(is_of_answer).cloned().collect();
    answer.reverse();
    answer.extend(from.into_iter().take_while(is_of_answer).cloned());
    answer
}
