//! The calls of an answer, as the conversation holds them.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use tower_chat_core::{Message, MessageId, Part, Role, RunId, ToolCall, pairing::AnswerIds};

use super::{RunLog, stored_messages::find};
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

impl RunLog {
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
        let (added, history) = (&self.conversation.added, &self.conversation.history);
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
        let held = answer.into_iter().filter_map(|message| {
            let ids = ids.next(&message).into_iter().map(|id| id.into_owned()).collect();
            let is_call = |part: &Part| match part {
                Part::ToolCall(call) => !call.provider_executed,
                part => matches!(part, Part::ApprovalRequest(_)),
            };
            let parts = message.parts.iter().enumerate().filter(|(_, part)| is_call(part));
            let parts = parts.map(|(index, _)| index).collect();
            Some((message.id?, Arc::new(HeldMessage { message, parts, ids })))
        });
        Some(held.collect())
    }
}

/// The messages of the model that stand around a position without a break: `before` are those
/// before it, the nearest first.
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
