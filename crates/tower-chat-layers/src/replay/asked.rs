//! Finds the unanswered calls that the results in new messages answer.
//!
//! A round consists of the calls of one answer of the model and their results. The open round is
//! the last one, if results may still arrive for it.

use std::{iter::repeat, sync::Arc};

use tower_chat_core::{Message, MessageId, Role, ToolCall, ToolResult, pairing::Answers};

use super::{Replay, round::Round};

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
        let open = named_replay.open.as_ref();
        let messages =
            if open.is_some() { messages } else { messages.get(..1).unwrap_or_default() };
        let messages = named_replay.named(messages);
        let (calls, found) = open.map(|open| open.answered_by(&messages)).unwrap_or_default();
        let mut calls: Vec<_> = calls.into_iter().map(Some).collect();
        let mut found = found.into_iter().chain(repeat(Answers::Nothing));
        let is_one_message = open.is_none_or(Round::is_one_message);
        let of_message = |message: &Arc<Message>| {
            // The results that answer no call of the open round may answer omitted calls.
            let mut earlier = named_replay.omitted_calls.clone();
            let asked = |(result, found): (&ToolResult, Answers)| -> Option<AskedCall> {
                let (call, must_be_named) = match found {
                    Answers::Again => return None,
                    Answers::Call(index) => (calls.get_mut(index)?.take()?, !is_one_message),
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
            message.results().zip(found.by_ref()).map(asked).collect()
        };
        messages.iter().map(of_message).collect()
    }
}
