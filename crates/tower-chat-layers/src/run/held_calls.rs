//! The calls of an answer, as the conversation holds them.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use tower_chat_core::{Message, MessageId, Part, Role, ToolCall, pairing::AnswerIds};

use super::{State, stored_messages::find};
use crate::tool::CallOfRun;

/// The calls of the answer that was asked about last: what comes out of its calls is mostly told one
/// by one.
#[derive(Debug, Default)]
pub(super) struct HeldCalls(RefCell<HashMap<MessageId, Arc<HeldMessage>>>);

/// A message that asks for tools.
#[derive(Debug)]
struct HeldMessage {
    message: Arc<Message>,
    /// The parts that are its calls.
    parts: Vec<usize>,
    /// The ids by which the calls are answered.
    ids: Vec<String>,
}

/// A call, the id by which it is answered, and whether it waits for approval.
pub(super) struct HeldCall {
    pub(super) call: ToolCall,
    pub(super) call_id: String,
    pub(super) waits_for_approval: bool,
}

impl State {
    /// A call as the conversation holds it: in messages about to be stored, in one that this run
    /// has stored, or in the loaded history.
    pub(super) fn held_call(
        &self,
        (id, index): CallOfRun,
        messages: &[Arc<Message>],
    ) -> Option<HeldCall> {
        let known = self.call_records.held.0.borrow().get(&id).cloned();
        let held = match known {
            Some(known) => known,
            None => {
                let held = self.held_answer(id, messages)?;
                let found = held.get(&id).cloned();
                *self.call_records.held.0.borrow_mut() = held;
                found?
            }
        };
        let (call, waits_for_approval) = match held.message.parts.get(*held.parts.get(index)?)? {
            Part::ToolCall(call) => (call, false),
            Part::ApprovalRequest(request) => (&request.call, true),
            _ => return None,
        };
        let call_id = held.ids.get(index)?.clone();
        Some(HeldCall { call: call.clone(), call_id, waits_for_approval })
    }

    /// All messages of the answer that a message is part of.
    fn held_answer(
        &self,
        id: MessageId,
        messages: &[Arc<Message>],
    ) -> Option<HashMap<MessageId, Arc<HeldMessage>>> {
        let is_of_answer = |message: &&Arc<Message>| {
            message.role == Role::Assistant && message.id.map(|id| id.run) == Some(id.run)
        };
        let of_run = self.conversation.added.len() + messages.len();
        let of_run_at = |position: usize| match position.checked_sub(self.conversation.added.len())
        {
            Some(position) => messages.get(position),
            None => self.conversation.added.get(position),
        };
        let found =
            find(messages, id).map(|(position, _)| self.conversation.added.len() + position);
        let found =
            found.or_else(|| find(&self.conversation.added, id).map(|(position, _)| position));
        let mut before: Vec<&Arc<Message>>;
        let from: Vec<&Arc<Message>>;
        if let Some(position) = found {
            let earlier = (0..position).rev().filter_map(of_run_at);
            before = earlier.take_while(is_of_answer).collect();
            let later = (position + 1..of_run).filter_map(of_run_at).take_while(is_of_answer);
            from = of_run_at(position).into_iter().chain(later).collect();
        } else {
            let position = self.position_in_history(id)?;
            let earlier = (0..position).rev().filter_map(|at| self.conversation.history.get(at));
            before = earlier.take_while(is_of_answer).collect();
            let later = self.conversation.history.iter_from(position + 1).take_while(is_of_answer);
            from = self.conversation.history.get(position).into_iter().chain(later).collect();
        }
        before.reverse();
        let mut ids = AnswerIds::default();
        let held = before.into_iter().chain(from).filter_map(|message| {
            let ids = ids.next(message).into_iter().map(|id| id.into_owned()).collect();
            let is_call = |part: &Part| match part {
                Part::ToolCall(call) => !call.provider_executed,
                part => matches!(part, Part::ApprovalRequest(_)),
            };
            let parts = message.parts.iter().enumerate().filter(|(_, part)| is_call(part));
            let parts = parts.map(|(index, _)| index).collect();
            Some((message.id?, Arc::new(HeldMessage { message: message.clone(), parts, ids })))
        });
        Some(held.collect())
    }
}
