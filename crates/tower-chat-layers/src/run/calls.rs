//! The service calls of a run. The outcome of the most recent call is cached, because a retry layer
//! may repeat this call.

use std::sync::Arc;

use tower_chat_core::{
    Answer, Message, Messages,
    store::{ModelUsage, author::Write},
};

use crate::next_step::NextStep;

/// The most recent service call and its outcome.
pub(crate) struct LastCall {
    /// `None` if the tool loop does not number its service calls.
    ordinal: Option<u32>,
    attempt: Attempt,
}

/// The outcome of a service call.
pub(super) enum Attempt {
    /// The answer and all earlier messages were submitted. `step` is `None` if the tool loop has
    /// not reported its loop policy. `write` is `None` after the write of the answer is durable.
    Answered { answer: Answer, step: Option<NextStep>, write: Option<Write> },
    /// The call failed. `unsubmitted` contains the inputs that were not submitted.
    Unanswered { unsubmitted: Vec<Arc<Message>> },
}

#[derive(Default)]
pub(crate) struct ServiceCalls {
    pub(super) last: Option<LastCall>,
    /// Whether a persistence layer has received the answer to a service call of this attempt.
    pub(super) is_answered: bool,
    /// The number of the most recent service call whose answer was refused. No message of this call
    /// is stored.
    pub(super) refused: Option<u32>,
    /// The messages that a layer above the tool loop has put before the run's input. The tool loop
    /// sends them only once, but each service call must begin with them.
    pub(super) prepended: Messages,
    pub(super) unreported_usage: Vec<ModelUsage>,
}

impl ServiceCalls {
    /// Returns the outcome of the service call with this number, if it is the most recent one.
    pub(super) fn attempt(&self, ordinal: Option<u32>) -> Option<&Attempt> {
        let last = self.last.as_ref().filter(|last| last.ordinal == ordinal)?;
        ordinal.is_some().then_some(&last.attempt)
    }

    pub(super) fn set_last(&mut self, ordinal: Option<u32>, attempt: Attempt) {
        self.is_answered |= matches!(attempt, Attempt::Answered { .. });
        self.last = Some(LastCall { ordinal, attempt });
    }

    /// Removes the write of an answer, which is durable. A retry of the service call then does not
    /// submit it again.
    pub(super) fn forget_write(&mut self, ordinal: Option<u32>) {
        let last = self.last.as_mut().filter(|last| last.ordinal == ordinal);
        if let Some(LastCall { attempt: Attempt::Answered { write, .. }, .. }) = last {
            *write = None;
        }
    }

    /// Returns how many messages at the end of a service call's inputs were not submitted.
    /// `usize::MAX` means all, because the answer was refused. `None` if no persister has received
    /// the call.
    pub(crate) fn unsubmitted_inputs(&self, ordinal: u32) -> Option<usize> {
        if self.refused == Some(ordinal) {
            return Some(usize::MAX);
        }
        match self.attempt(Some(ordinal))? {
            Attempt::Answered { .. } => Some(0),
            Attempt::Unanswered { unsubmitted } => Some(unsubmitted.len()),
        }
    }

    pub(crate) fn has_answer(&self, ordinal: u32) -> bool {
        matches!(self.attempt(Some(ordinal)), Some(Attempt::Answered { .. }))
    }

    /// Returns the next step that was decided when the answer was submitted, if `messages` equal
    /// this answer.
    pub(crate) fn step_after(&self, ordinal: u32, messages: &[Arc<Message>]) -> Option<NextStep> {
        match self.attempt(Some(ordinal))? {
            Attempt::Answered { answer, step, .. } if answer.messages == messages => step.clone(),
            Attempt::Answered { .. } | Attempt::Unanswered { .. } => None,
        }
    }
}
