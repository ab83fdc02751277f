//! Finds the calls that the results of further messages answer.

use std::sync::Arc;

use tower_chat_core::{Message, MessageId, Role, ToolCall, ToolResult, pairing::Answers};

use super::{Replay, round::Unanswered};

/// A tool call, with the id that its result uses.
#[derive(Debug, Clone)]
pub(crate) struct AskedCall {
    /// The id of the message that contains the call, and the index of the call among its calls.
    pub(crate) call_position: (MessageId, usize),
    pub(crate) call: ToolCall,
    /// Whether the call waited for approval.
    pub(crate) needed_approval: bool,
    /// Whether the result must name its call by position, because several messages of the answer contain
    /// calls, or because the call belongs to an earlier round.
    pub(crate) must_be_named: bool,
}

impl Replay {
    /// Pushes messages. Returns for each message, and for each of its results, the unanswered call that
    /// the result answers. Returns `None` for a result that answers no such call, or a call in a
    /// message without an id.
    ///
    /// Consecutive messages of results are processed together, because results without ids can only be
    /// matched with the calls of a round from all of them.
    pub(crate) fn push_answering(
        &mut self,
        messages: &[Arc<Message>],
    ) -> Vec<Vec<Option<AskedCall>>> {
        let mut answered = Vec::with_capacity(messages.len());
        while let Some(message) = messages.get(answered.len()) {
            let rest = messages.get(answered.len()..).unwrap_or_default();
            let next = rest.iter().skip(1).take_while(|message| message.role == Role::Tool).count();
            let together = rest.get(..=next).unwrap_or_default();
            let found = self.calls_answered_by(together);
            if message.role != Role::Tool {
                answered.extend(found.into_iter().take(1));
                self.push(message);
                continue;
            }
            for (message, found) in together.iter().zip(found) {
                answered.push(found);
                self.push(message);
                if self.open.is_none() {
                    // The round is complete, so the next message can only answer calls from before the
                    // round.
                    break;
                }
            }
        }
        answered
    }

    /// Returns the unanswered calls that consecutive messages of results answer. Without an open round,
    /// processes only the first message.
    pub(super) fn calls_answered_by(
        &self,
        messages: &[Arc<Message>],
    ) -> Vec<Vec<Option<AskedCall>>> {
        let settled = self.settled();
        let Some(open) = &settled.open else {
            let first = messages.first().map(|first| settled.named(std::slice::from_ref(first)));
            let asked = |message: &Arc<Message>| {
                let found = std::iter::repeat(Answers::Nothing);
                settled.asked_calls(message, found, &mut Vec::new(), true)
            };
            return first.iter().flatten().map(asked).collect();
        };
        let messages = settled.named(messages);
        let (calls, found) = open.answered_by(&messages);
        let mut calls: Vec<_> = calls.into_iter().map(Some).collect();
        let mut found = found.into_iter();
        let is_one_message = open.is_one_message();
        let asked = |message: &Arc<Message>| {
            settled.asked_calls(message, found.by_ref(), &mut calls, is_one_message)
        };
        messages.iter().map(asked).collect()
    }

    /// Returns the calls that the results of a message answer. `found` contains the match of each
    /// result with `round`, the calls of the open round. A result without a match may answer a call
    /// that was omitted. A call that is returned is removed from `round`.
    pub(super) fn asked_calls(
        &self,
        message: &Message,
        found: impl Iterator<Item = Answers>,
        round: &mut [Option<Unanswered>],
        is_one_message: bool,
    ) -> Vec<Option<AskedCall>> {
        let mut earlier = self.omitted_calls.clone();
        let asked = |(result, found): (&ToolResult, Answers)| -> Option<AskedCall> {
            let (call, must_be_named) = match found {
                Answers::Again => return None,
                Answers::Call(index) => (round.get_mut(index)?.take()?, !is_one_message),
                Answers::Nothing => {
                    let number = earlier.find(result)?;
                    (Arc::unwrap_or_clone(earlier.remove(number)?), true)
                }
            };
            let call_position = call.call_position?;
            let needed_approval = call.approval.is_some();
            Some(AskedCall {
                call_position,
                call: call.into_call(),
                needed_approval,
                must_be_named,
            })
        };
        message.results().zip(found).map(asked).collect()
    }
}
