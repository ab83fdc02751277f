//! Looks up stored calls and messages by their ids and positions.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    Message, MessageId, Role, RunId, pairing::AnswerIds, store::SequencePosition,
};

use super::{
    call_records::{CallOfMessage, CallRecords, StoredPosition, asked_call},
    conversation::LoadedConversation,
    stored_messages::{RoundCounter, find, position_in},
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
        if let Some(asking) = self.asking.get(&message) {
            let index = (*asking.stored.get(index)?)?;
            let call = SequencePosition { sequence: asking.sequence, index };
            return Some(StoredPosition { call, round_index: asking.round_index });
        }
        let position = conversation.position_in_history(message)?;
        let round_index = conversation.round_in_history(position);
        let call = SequencePosition {
            sequence: conversation.history.skipped() + position as u64 + 1,
            index: u32::try_from(index).ok()?,
        };
        Some(StoredPosition { call, round_index })
    }

    /// Returns a call of the conversation. `messages` are about to be stored.
    pub(super) fn call_of_conversation(
        &self,
        conversation: &LoadedConversation,
        call: CallOfRun,
        messages: &[Arc<Message>],
    ) -> Option<CallOfMessage> {
        let mut known = self.calls_of_answer.borrow_mut();
        if !known.contains_key(&call) {
            *known = conversation.calls_of_answer(call.0, messages)?;
        }
        known.get(&call).cloned()
    }
}

impl LoadedConversation {
    /// Returns the index of a message in the loaded history. If two messages have the same id, the
    /// later one.
    pub(super) fn position_in_history(&self, id: MessageId) -> Option<usize> {
        position_in(&self.history, id)
    }

    /// Returns the index of the round that a message of the loaded history belongs to.
    fn round_in_history(&self, position: usize) -> u32 {
        let messages = &self.history.messages;
        let run_of = |message: &Arc<Message>| message.id.map(|id| id.run);
        let run = messages.get(position).and_then(run_of);
        let of_run = |message: &&Arc<Message>| run_of(message) == run;
        let before = messages.take(position).iter().rev().take_while(of_run).count();
        let mut rounds = RoundCounter::default();
        let until = messages.iter_from(position - before).take(before + 1);
        until.for_each(|message| rounds.push(message));
        rounds.last_index()
    }

    pub(super) fn stored_message(&self, id: MessageId) -> Option<&Arc<Message>> {
        let added = find(self.added.as_slice(), id).map(|(_, message)| message);
        added.or_else(|| self.history.messages.get(self.position_in_history(id)?))
    }

    /// Returns the calls of the answer that contains the message `id`.
    fn calls_of_answer(
        &self,
        id: MessageId,
        messages: &[Arc<Message>],
    ) -> Option<HashMap<CallOfRun, CallOfMessage>> {
        let (added, history) = (self.added.as_slice(), &self.history.messages);
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
        let (mut ids, mut calls) = (AnswerIds::default(), HashMap::new());
        for message in &answer {
            let ids = ids.next(message);
            let Some(id) = message.id else { continue };
            let asked = message.parts.iter().filter_map(asked_call);
            for (index, ((call, waits_for_approval), call_id)) in asked.zip(ids).enumerate() {
                let (call, call_id) = (call.clone(), call_id.into_owned());
                calls.insert((id, index), CallOfMessage { call, call_id, waits_for_approval });
            }
        }
        Some(calls)
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
