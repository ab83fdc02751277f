//! The service calls of a run. A retry may repeat the most recent call.

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
    /// The service call was answered, and its answer and all earlier messages were submitted. `write`
    /// contains the write of the answer until that write is durable. `step` is the next step of the run.
    /// `None` if the tool loop has not reported its loop policy.
    Answered { answer: Answer, step: Option<NextStep>, write: Option<Write> },
    /// The service call failed. `rest` contains those of its inputs that were not submitted.
    Unanswered { rest: Vec<Arc<Message>> },
}

/// The service calls of a run.
#[derive(Default)]
pub(crate) struct ServiceCalls {
    /// The most recent service call, if each service call is stored separately.
    pub(super) last: Option<LastCall>,
    /// Whether a layer has seen the answer to a service call of this attempt.
    pub(super) is_answered: bool,
    /// The number of the most recent service call whose answer the run or the store has refused. Nothing
    /// of that call is stored.
    pub(super) refused: Option<u32>,
    /// The messages that a layer above put before the run's input. These messages are first in every
    /// service call, although the tool loop sends them only once.
    pub(super) above: Messages,
    pub(super) unreported_usage: UnreportedUsage,
}

impl ServiceCalls {
    /// Returns the outcome of the service call with this number, if it is the most recent one. Returns
    /// `None` for a service call without a number.
    pub(super) fn attempt(&self, ordinal: Option<u32>) -> Option<&Attempt> {
        let last = self.last.as_ref().filter(|last| last.ordinal == ordinal)?;
        ordinal.is_some().then_some(&last.attempt)
    }

    /// Stores the outcome of a service call.
    pub(super) fn keep(&mut self, ordinal: Option<u32>, attempt: Attempt) {
        self.is_answered |= matches!(attempt, Attempt::Answered { .. });
        self.last = Some(LastCall { ordinal, attempt });
    }

    /// Returns those inputs of the most recent service call that were not submitted. Empty if the call
    /// was answered.
    pub(super) fn unanswered(&self) -> &[Arc<Message>] {
        match self.last.as_ref().map(|last| &last.attempt) {
            Some(Attempt::Unanswered { rest }) => rest,
            Some(Attempt::Answered { .. }) | None => &[],
        }
    }

    /// Removes the write of an answer after the write is durable, so that a retry of the call submits
    /// nothing again.
    pub(super) fn forget_write(&mut self, ordinal: Option<u32>) {
        let last = self.last.as_mut().filter(|last| last.ordinal == ordinal);
        if let Some(LastCall { attempt: Attempt::Answered { write, .. }, .. }) = last {
            *write = None;
        }
    }

    /// Returns the number of messages at the end of a service call's inputs that were not submitted. All
    /// of them (`usize::MAX`) if its answer was refused. `None` if no persister has seen the call.
    pub(crate) fn unsubmitted_inputs(&self, ordinal: u32) -> Option<usize> {
        if self.refused == Some(ordinal) {
            return Some(usize::MAX);
        }
        match self.attempt(Some(ordinal))? {
            Attempt::Answered { .. } => Some(0),
            Attempt::Unanswered { rest } => Some(rest.len()),
        }
    }

    /// Returns whether a service call of the run has an answer, stored or submitted.
    pub(crate) fn has_answer(&self, ordinal: u32) -> bool {
        matches!(self.attempt(Some(ordinal)), Some(Attempt::Answered { .. }))
    }

    /// Returns the next step after the answer of a service call, if it was decided when the answer was
    /// stored and `messages` equal the stored answer.
    pub(crate) fn step_after(&self, ordinal: u32, messages: &[Arc<Message>]) -> Option<NextStep> {
        match self.attempt(Some(ordinal))? {
            Attempt::Answered { answer, step, .. } if answer.messages == messages => step.clone(),
            Attempt::Answered { .. } | Attempt::Unanswered { .. } => None,
        }
    }
}
