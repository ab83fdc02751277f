//! Calls that need a result, with their ids and positions.

use std::sync::Arc;

use tower_chat_core::{
    CallPosition, Message, MessageId, Part, Role, ToolCall,
    pairing::{AnswerIds, asked_call},
};

/// The message of a call, and the index of the call in it.
pub(crate) type CallOfRun = (MessageId, usize);

/// A call without a result. A clone shares the data, so that the futures of the loop and of the
/// tool do not copy the arguments.
#[derive(Clone)]
pub(crate) struct PendingCall(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    call: ToolCall,
    /// The id by which the result refers to the call.
    id: String,
    position: Option<CallOfRun>,
    /// Whether the result must contain the position of the call. The id alone does not identify the
    /// call if several messages of the answer contain calls, or if a later run stores the result.
    is_named: bool,
    has_arguments_of_decision: bool,
}

impl PendingCall {
    /// Returns the calls of an answer that need a result and do not wait for approval.
    pub(crate) fn of_answer(messages: &[Arc<Message>]) -> Vec<Self> {
        let is_asking = |message: &&Arc<Message>| {
            message.role == Role::Assistant && message.asked_calls().next().is_some()
        };
        let is_named = messages.iter().filter(is_asking).count() > 1;
        let mut ids = AnswerIds::default();
        let mut calls = Vec::new();
        for message in messages {
            if message.role != Role::Assistant {
                // Calls in messages whose role is not assistant need no result.
                ids = AnswerIds::default();
                continue;
            }
            let parts = message.parts.iter().filter(|part| asked_call(part).is_some());
            for (index, (part, id)) in parts.zip(ids.next(message)).enumerate() {
                let Part::ToolCall(call) = part else { continue };
                calls.push(Self(Arc::new(Inner {
                    call: call.clone(),
                    id: id.into_owned(),
                    position: message.id.map(|message| (message, index)),
                    is_named,
                    has_arguments_of_decision: false,
                })));
            }
        }
        calls
    }

    /// Creates a call of an earlier run. `id` is the id by which the result refers to the call.
    pub(crate) fn of_earlier_run(call: ToolCall, id: String, position: Option<CallOfRun>) -> Self {
        let has_arguments_of_decision = false;
        Self(Arc::new(Inner { call, id, position, is_named: true, has_arguments_of_decision }))
    }

    pub(crate) fn with_arguments_of_decision(&self, arguments: &str) -> Self {
        let mut call = self.call().clone();
        arguments.clone_into(&mut call.arguments);
        Self(Arc::new(Inner { call, has_arguments_of_decision: true, ..(*self.0).clone() }))
    }

    /// Returns whether the arguments are from the approval response, and not from the model.
    pub(crate) fn has_arguments_of_decision(&self) -> bool {
        self.0.has_arguments_of_decision
    }

    pub(crate) fn with_position(&self, position: Option<CallOfRun>) -> Self {
        Self(Arc::new(Inner { position, ..(*self.0).clone() }))
    }

    pub(crate) fn position(&self) -> Option<CallOfRun> {
        self.0.position
    }

    /// Returns the position that the result must contain, or `None` if the id identifies the call.
    pub(crate) fn named_by(&self) -> Option<CallPosition> {
        let (message, index) = self.0.position.filter(|_| self.0.is_named)?;
        Some(CallPosition { message, index: u32::try_from(index).unwrap_or(u32::MAX) })
    }

    /// Returns the call with the arguments with which it is executed.
    pub(crate) fn call(&self) -> &ToolCall {
        &self.0.call
    }

    pub(crate) fn name(&self) -> &str {
        &self.call().name
    }

    /// Returns the id by which the result refers to the call.
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }
}
