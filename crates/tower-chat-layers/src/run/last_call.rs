//! The last service call of a run, for a retry that sends it again.

use std::sync::Arc;

use tower_chat_core::{Answer, Message, store::author::Write};

use super::log::{RunLog, ServiceCalls};
use crate::next_step::NextStep;

/// A service call, and what it came to.
pub(super) struct LastCall {
    ordinal: Option<u32>,
    attempt: Attempt,
}

/// What a service call came to.
pub(super) enum Attempt {
    /// Its answer and everything before it was submitted, by a write that is kept until it is
    /// known to be durable. `step` is what follows it, where the tool loop has said how it decides.
    Answered { answer: Answer, step: Option<NextStep>, write: Option<Write> },
    /// It came to no answer; `rest` are those of its inputs that were not submitted.
    Unanswered { rest: Vec<Arc<Message>> },
}

impl ServiceCalls {
    /// What a service call has come to, if it is the last. A call without a number is never known
    /// again.
    pub(super) fn attempt(&self, ordinal: Option<u32>) -> Option<&Attempt> {
        let last = self.last.as_ref().filter(|last| last.ordinal == ordinal)?;
        ordinal.is_some().then_some(&last.attempt)
    }

    /// Keeps what a service call has come to.
    pub(super) fn keep(&mut self, ordinal: Option<u32>, attempt: Attempt) {
        self.is_answered |= matches!(attempt, Attempt::Answered { .. });
        self.last = Some(LastCall { ordinal, attempt });
    }

    /// The inputs of the last service call that were not submitted, if it came to no answer.
    pub(super) fn unanswered(&self) -> &[Arc<Message>] {
        match self.last.as_ref().map(|last| &last.attempt) {
            Some(Attempt::Unanswered { rest }) => rest,
            Some(Attempt::Answered { .. }) | None => &[],
        }
    }

    /// The answer of a call is durable: its retry has nothing to submit again.
    pub(super) fn forget_write(&mut self, ordinal: Option<u32>) {
        let last = self.last.as_mut().filter(|last| last.ordinal == ordinal);
        if let Some(LastCall { attempt: Attempt::Answered { write, .. }, .. }) = last {
            *write = None;
        }
    }
}

impl RunLog {
    /// How many messages at the end of a service call have not become part of the run; `None` if
    /// no persister has seen the call.
    pub(crate) fn left_of_call(&self, ordinal: u32) -> Option<usize> {
        if self.calls.refused == Some(ordinal) {
            return Some(usize::MAX);
        }
        match self.calls.attempt(Some(ordinal))? {
            Attempt::Answered { .. } => Some(0),
            Attempt::Unanswered { rest } => Some(rest.len()),
        }
    }

    /// Whether a service call of the run has its answer, stored or on the way into the store.
    pub(crate) fn has_answer(&self, ordinal: u32) -> bool {
        matches!(self.calls.attempt(Some(ordinal)), Some(Attempt::Answered { .. }))
    }

    /// What follows the answer of a service call, if it was decided when the answer was stored and
    /// this is the answer as it was stored.
    pub(crate) fn step_after(&self, ordinal: u32, messages: &[Arc<Message>]) -> Option<NextStep> {
        match self.calls.attempt(Some(ordinal))? {
            Attempt::Answered { answer, step, .. } if answer.messages == messages => step.clone(),
            Attempt::Answered { .. } | Attempt::Unanswered { .. } => None,
        }
    }
}
