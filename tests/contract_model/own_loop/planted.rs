//! Planted faults between an application's tool loop and the persister
//! (`PerServiceCallPersistence`). Most of them affect only one way in which the loop sends its
//! messages.

use std::sync::Arc;

use tower_chat::{ChatRequest, Message, Part, Role, run::Run, transcript::RepeatedTranscript};

use super::{
    case::{Case, IN_COPY, QUEUED, Sends},
    key,
};
use crate::contract_model::planted;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// The last message of a request is lost.
    LastLost,
    /// If the loop sends all messages, each request stores all of them again.
    AllRepeated,
    /// If the loop sends only new messages, the model receives only these messages.
    HistoryLost,
    /// If the loop sends stored messages again without their ids, these messages are stored again.
    UnnamedRepeated,
    /// The model does not receive reasoning that the types of the loop lose.
    ReasoningLost,
    /// The model does not receive the old messages that the loop omits.
    TrimmedLost,
    /// The system message of a loop is stored with each request.
    SystemRepeated,
    /// A message that a tool has queued is lost.
    QueuedLost,
    /// The results of tools that finished before their turn was stopped are lost.
    StoppedLost,
    /// The digest of the input of a run is not stored.
    InputLost,
    /// A copy of a conversation and the original are the same conversation.
    CopyShared,
}

pub(super) const FAULTS: [Fault; 11] = [
    Fault::LastLost,
    Fault::AllRepeated,
    Fault::HistoryLost,
    Fault::UnnamedRepeated,
    Fault::ReasoningLost,
    Fault::TrimmedLost,
    Fault::SystemRepeated,
    Fault::QueuedLost,
    Fault::StoppedLost,
    Fault::InputLost,
    Fault::CopyShared,
];

impl Fault {
    /// Returns the fault to plant in the store, if any.
    pub(super) fn of_store(self) -> Option<planted::Fault> {
        (self == Self::InputLost).then_some(planted::Fault::LostInput)
    }

    pub(super) fn change_sent(self, case: &Case, request: &mut ChatRequest) {
        let mut messages: Vec<Arc<Message>> = request.messages().iter().cloned().collect();
        let is_system = |message: &Arc<Message>| message.role == Role::System;
        match self {
            Self::AllRepeated if case.sends == Sends::All => append(request),
            Self::UnnamedRepeated if !case.keeps_all => append(request),
            Self::LastLost if messages.len() > 1 => drop(messages.pop()),
            Self::SystemRepeated => {
                let system = messages.first().filter(|first| is_system(first)).cloned();
                let last = messages.len().saturating_sub(1);
                messages.splice(last..last, system.filter(|_| last > 0));
            }
            Self::QueuedLost => messages.retain(|message| message.text() != QUEUED),
            Self::StoppedLost => {
                let is_input = |message: &Message| message.text().starts_with("say");
                while let Some(input) = messages
                    .windows(2)
                    .position(|pair| pair[0].role == Role::Tool && is_input(&pair[1]))
                {
                    messages.remove(input);
                }
            }
            Self::CopyShared => {
                if let Some(mut conversation) = request.conversation().cloned()
                    && messages.last().is_some_and(|last| last.text() == IN_COPY)
                {
                    conversation.key = key();
                    *request = request.clone().in_run(conversation);
                }
            }
            _ => {}
        }
        request.set_messages(messages, request.history_len());
    }

    /// Changes a request between the persister and the model. The loop has sent `sent` messages.
    pub(super) fn change_shown(self, case: &Case, sent: usize, request: &mut ChatRequest) {
        let mut messages: Vec<Arc<Message>> = request.messages().iter().cloned().collect();
        let is_trimmed = match self {
            Self::HistoryLost => case.sends == Sends::New,
            Self::TrimmedLost => case.sends == Sends::TwoTurns,
            _ => false,
        };
        if is_trimmed {
            messages.drain(..messages.len().saturating_sub(sent));
        }
        if self == Self::ReasoningLost && !case.keeps_all {
            for message in &mut messages {
                Arc::make_mut(message).parts.retain(|part| !matches!(part, Part::Reasoning(_)));
            }
        }
        request.set_messages(messages, request.history_len());
    }
}

/// Makes the persister store all messages of a request. A layer above the loop prevents this,
/// because the run then decides which messages are stored.
fn append(request: &mut ChatRequest) {
    if request.extensions.get::<Run>().is_none() {
        *request = request.clone().with_extension(RepeatedTranscript::Append);
    }
}
