//! The calls of an answer, as the conversation contains them.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use tower_chat_core::{Message, MessageId, Part, Role, RunId, ToolCall, pairing::AnswerIds};

use super::{RunLog, stored_messages::find};
use crate::tool::CallOfRun;

/// A cache of one entry: the calls of the most recent answer. Outcomes usually arrive one call at a
/// time, and each of them needs the same answer.
#[derive(Debug, Default)]
pub(super) struct HeldCalls(RefCell<HashMap<MessageId, Arc<HeldMessage>>>);

/// A message with tool calls.
#[derive(Debug)]
struct HeldMessage {
    message: Arc<Message>,
    /// The indices of the parts that are calls.
    parts: Vec<usize>,
    /// The ids that the results of the calls use.
    ids: Vec<String>,
}

/// A call, the id that its result uses, and whether it waits for approval.
pub(super) struct HeldCall {
    pub(super) call: ToolCall,
    pub(super) call_id: String,
    pub(super) waits_for_approval: bool,
}

impl RunLog {
    /// Returns a call from the conversation: from `messages`, which are about to be stored, from a
    /// message that this run has stored, or from the loaded history.
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

    /// Returns all messages of the answer that contains a message.
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

/// Returns the uninterrupted assistant messages of a run before and after a position. `before` are the
/// messages before the position, the nearest first.
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
