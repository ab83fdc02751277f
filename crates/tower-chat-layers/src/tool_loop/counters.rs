//! What a run has used of its limits.

use tower_chat_core::{ConversationKey, Usage};

use super::{ToolFailure, ToolLoopError};
use crate::{
    next_step::{Action, PlannedCall, charge},
    run::InterruptedRun,
};

/// What is counted over a run.
#[derive(Default)]
pub(super) struct RunCounters {
    pub(super) service_calls: u32,
    pub(super) usage: Usage,
    /// Batches so far, approved ones included.
    pub(super) batches: usize,
    /// Rounds so far, as the limit counts them.
    pub(super) rounds: usize,
    /// Paused answers that went on.
    pub(super) pauses: u32,
    tool_calls: usize,
    failing_rounds: usize,
    failures: Vec<ToolFailure>,
    /// What a service did not take as it is stored was logged.
    pub(super) has_logged_changes: bool,
}

impl RunCounters {
    /// What an earlier attempt at the run has used. Approved calls whose outcome is known count
    /// with it.
    pub(super) fn resumed(interrupted: &InterruptedRun, approved: &[PlannedCall]) -> Self {
        let has_run = |call: &&PlannedCall| matches!(call.action, Action::Reuse(_));
        let rounds = interrupted.rounds;
        Self {
            rounds,
            // That of the response is run again.
            batches: rounds.saturating_sub(usize::from(!interrupted.response.is_empty())),
            tool_calls: interrupted.tool_calls + approved.iter().filter(has_run).count(),
            ..Self::default()
        }
    }

    /// How many tool calls were let run so far.
    pub(super) fn tool_calls(&self) -> usize {
        self.tool_calls
    }

    /// Refuses the calls of a batch that are over the budget, and counts the others.
    pub(super) fn charged(
        &mut self,
        mut calls: Vec<PlannedCall>,
        budget: Option<usize>,
    ) -> Vec<PlannedCall> {
        charge(&mut calls, self.tool_calls, budget);
        self.count_calls(&calls);
        calls
    }

    /// Counts the calls of a batch that are to run.
    pub(super) fn count_calls(&mut self, calls: &[PlannedCall]) {
        self.tool_calls += calls.iter().filter(|call| call.is_to_run()).count();
    }

    /// Takes note of the failures of a batch, and fails the run where a tool wants it, or where there
    /// are too many in a row.
    pub(super) fn failed(
        &mut self,
        mut failures: Vec<ToolFailure>,
        most: Option<usize>,
        conversation: Option<&ConversationKey>,
    ) -> Result<(), ToolLoopError> {
        if let Some(index) = failures.iter().position(ToolFailure::fails_run) {
            let (failure, conversation) = (failures.swap_remove(index), conversation.cloned());
            return Err(ToolLoopError::ToolFailedRun { failure, conversation });
        }
        let Some(most) = most else { return Ok(()) };
        if failures.is_empty() {
            self.failing_rounds = 0;
            self.failures.clear();
            return Ok(());
        }
        self.failing_rounds += 1;
        self.failures.extend(failures);
        if self.failing_rounds <= most {
            return Ok(());
        }
        Err(ToolLoopError::ConsecutiveFailures {
            rounds: self.failing_rounds,
            failures: std::mem::take(&mut self.failures),
            conversation: conversation.cloned(),
        })
    }
}
