//! The service calls of a run. The outcome of the most recent call is cached, because a retry layer
//! may repeat this call.

use std::sync::Arc;

use tower_chat_core::{Answer, Message, Messages, store::author::Write};

use super::usage::UnreportedUsage;
use crate::next_step::NextStep;

/// The most recent service call and its outcome.
pub(crate) struct LastCall {
    /// The number of the service call in its run, from 0. `None` if the tool loop does not number its
    /// calls.
    ordinal: Option<u32>,
    attempt: Attempt,
}

/// The outcome of a service call.
pub(super) enum Attempt {
    /// The service call was answered, and its answer and all earlier messages were submitted.
    /// `step` is the next step of the run, or `None` if the tool loop has not reported its loop
    /// policy. `write` is the write of the answer, or `None` after this write is durable.
    Answered { answer: Answer, step: Option<NextStep>, write: Option<Write> },
    /// The service call failed. `rest` contains the inputs of the call that were not submitted.
    Unanswered { rest: Vec<Arc<Message>> },
}

/// The service calls of a run.
#[derive(Default)]
pub(crate) struct ServiceCalls {
    /// The most recent service call.
    pub(super) last: Option<LastCall>,
    /// Whether a persistence layer has received the answer to a service call of this attempt.
    pub(super) is_answered: bool,
    /// The number of the most recent service call whose answer the run or the store has refused. No
    /// message of this service call is stored.
    pub(super) refused: Option<u32>,
    /// The messages that a layer above the tool loop has put before the run's input. The layer that
    /// stores the service calls puts these messages first in every service call, because the tool
    /// loop sends them only once.
    pub(super) above: Messages,
    pub(super) unreported_usage: UnreportedUsage,
}

impl ServiceCalls {
    /// Returns the outcome of the service call with this number, if this is the most recent service
    /// call. Returns `None` if `ordinal` is `None`.
    pub(super) fn attempt(&self, ordinal: Option<u32>) -> Option<&Attempt> {
        let last = self.last.as_ref().filter(|last| last.ordinal == ordinal)?;
        ordinal.is_some().then_some(&last.attempt)
    }

    /// Stores the outcome of a service call.
    pub(super) fn keep(&mut self, ordinal: Option<u32>, attempt: Attempt) {
        self.is_answered |= matches!(attempt, Attempt::Answered { .. });
        self.last = Some(LastCall { ordinal, attempt });
    }

    /// Returns those inputs of the most recent service call that were not submitted. Returns
    /// nothing if the service call was answered.
    pub(super) fn unanswered(&self) -> &[Arc<Message>] {
        match self.last.as_ref().map(|last| &last.attempt) {
            Some(Attempt::Unanswered { rest }) => rest,
            Some(Attempt::Answered { .. }) | None => &[],
        }
    }

    /// Removes the write of an answer after this write is durable. A retry of the service call then
    /// does not submit the write again.
    pub(super) fn forget_write(&mut self, ordinal: Option<u32>) {
        let last = self.last.as_mut().filter(|last| last.ordinal == ordinal);
        if let Some(LastCall { attempt: Attempt::Answered { write, .. }, .. }) = last {
            *write = None;
        }
    }

    /// Returns how many messages at the end of a service call's inputs were not submitted. Returns
    /// `usize::MAX`, which stands for all inputs, if the answer of the service call was refused.
    /// Returns `None` if no persistence layer below the tool loop has received the service call.
    pub(crate) fn unsubmitted_inputs(&self, ordinal: u32) -> Option<usize> {
        if self.refused == Some(ordinal) {
            return Some(usize::MAX);
        }
        match self.attempt(Some(ordinal))? {
            Attempt::Answered { .. } => Some(0),
            Attempt::Unanswered { rest } => Some(rest.len()),
        }
    }

    /// Returns whether the most recent service call has this number and was answered.
    pub(crate) fn has_answer(&self, ordinal: u32) -> bool {
        matches!(self.attempt(Some(ordinal)), Some(Attempt::Answered { .. }))
    }

    /// Returns the next step after the answer of a service call, if this step was decided when the
    /// answer was submitted and `messages` equal the submitted answer.
    pub(crate) fn step_after(&self, ordinal: u32, messages: &[Arc<Message>]) -> Option<NextStep> {
        match self.attempt(Some(ordinal))? {
            Attempt::Answered { answer, step, .. } if answer.messages == messages => step.clone(),
            Attempt::Answered { .. } | Attempt::Unanswered { .. } => None,
        }
    }
}
