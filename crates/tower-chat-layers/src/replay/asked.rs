//! Finds the unanswered calls that the results in new messages answer.
//!
//! A round consists of the calls of one answer of the model and their results. The open round is
//! the last one, if results may still arrive for it.

use std::sync::Arc;

use tower_chat_core::{Message, MessageId, Role, ToolCall, ToolResult, pairing::Answers};

use super::{Replay, round::RoundCall};

/// An unanswered call for which a new message contains a result.
#[derive(Debug, Clone)]
pub(crate) struct AskedCall {
    /// The id of the message that contains the call, and the index of the call among its calls.
    pub(crate) call_position: (MessageId, usize),
    pub(crate) call: ToolCall,
    pub(crate) needed_approval: bool,
    /// Whether the result must contain the position of the call. The id is not sufficient for a
    /// call of an earlier round, or if several messages of the answer contain calls.
    pub(crate) must_be_named: bool,
}

impl Replay {
    /// Pushes messages. Returns one list for each message: for each result in the message, the
    /// unanswered call that the result answers. The item is `None` if the result answers no
    /// unanswered call, or if the message of the call has no id.
    pub(crate) fn push_answering(
        &mut self,
        messages: &[Arc<Message>],
    ) -> Vec<Vec<Option<AskedCall>>> {
        let mut answered = Vec::with_capacity(messages.len());
        while let Some(message) = messages.get(answered.len()) {
            if message.role != Role::Tool && message.results().next().is_none() {
                answered.push(Vec::new());
                self.push(message);
                continue;
            }
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
                    // The round is complete. The next messages can only answer calls from before
                    // this round, and must be matched again.
                    break;
                }
            }
        }
        answered
    }

    /// Returns the unanswered calls that consecutive messages of results answer. If no round is
    /// open, only the first message is processed.
    pub(super) fn calls_answered_by(
        &self,
        messages: &[Arc<Message>],
    ) -> Vec<Vec<Option<AskedCall>>> {
        let named_replay = self.with_named_results();
        let Some(open) = &named_replay.open else {
            let first =
                messages.first().map(|first| named_replay.named(std::slice::from_ref(first)));
            let asked = |message: &Arc<Message>| {
                let found = std::iter::repeat(Answers::Nothing);
                named_replay.asked_calls(message, found, &mut Vec::new(), true)
            };
            return first.iter().flatten().map(asked).collect();
        };
        let messages = named_replay.named(messages);
        let (calls, found) = open.answered_by(&messages);
        let mut calls: Vec<_> = calls.into_iter().map(Some).collect();
        let mut found = found.into_iter();
        let is_one_message = open.is_one_message();
        let asked = |message: &Arc<Message>| {
            named_replay.asked_calls(message, found.by_ref(), &mut calls, is_one_message)
        };
        messages.iter().map(asked).collect()
    }

    /// Returns the calls that the results of a message answer, and removes them from `round` (the
    /// calls of the open round). `found` contains for each result its match with these calls. Other
    /// results may answer omitted calls of earlier rounds.
    pub(super) fn asked_calls(
        &self,
        message: &Message,
        found: impl Iterator<Item = Answers>,
        round: &mut [Option<RoundCall>],
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
