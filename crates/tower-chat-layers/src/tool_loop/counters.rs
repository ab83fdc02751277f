//! Counts the rounds, calls and failures of a run for its limits. A round consists of the calls of
//! one answer and their results. A batch is the calls of one round. An attempt is one execution of
//! the run: if the same request is sent again, another attempt continues the run.

use tower_chat_core::{ConversationKey, Usage};

use super::{ToolFailure, ToolLoopError};
use crate::{
    next_step::{Action, PlannedCall, charge},
    run::InterruptedRun,
};

#[derive(Default)]
pub(super) struct RunCounters {
    /// The number of service calls that this attempt has begun, which is the ordinal of the next
    /// one.
    pub(super) service_calls: u32,
    /// The usage of the answered service calls of this attempt.
    pub(super) usage: Usage,
    /// The index of the next batch in the run. Includes the rounds of earlier attempts and the
    /// batches of approved calls.
    pub(super) batches: usize,
    /// The number of rounds that `max_rounds` limits. Excludes batches of approved calls.
    pub(super) rounds: usize,
    pub(super) pauses: u32,
    /// The number of tool calls that were allowed to run, in all attempts.
    pub(super) tool_calls: usize,
    failing_rounds: usize,
    failures: Vec<ToolFailure>,
    pub(super) has_logged_changes: bool,
}

impl RunCounters {
    /// Creates the counters of a run that continues an earlier attempt. Approved calls with a known
    /// outcome count as calls of the earlier attempt.
    pub(super) fn resumed(interrupted: &InterruptedRun, approved: &[PlannedCall]) -> Self {
        let has_run = |call: &&PlannedCall| matches!(call.action, Action::Reuse(_));
        let rounds = interrupted.rounds;
        Self {
            rounds,
            // The batch of the interrupted response runs again.
            batches: rounds.saturating_sub(usize::from(!interrupted.response.is_empty())),
            tool_calls: interrupted.tool_calls + approved.iter().filter(has_run).count(),
            ..Self::default()
        }
    }

    /// Refuses the calls of a batch that exceed the budget, and counts the others.
    pub(super) fn charged(
        &mut self,
        mut calls: Vec<PlannedCall>,
        budget: Option<usize>,
    ) -> Vec<PlannedCall> {
        charge(&mut calls, self.tool_calls, budget);
        self.count_calls(&calls);
        calls
    }

    pub(super) fn count_calls(&mut self, calls: &[PlannedCall]) {
        self.tool_calls += calls.iter().filter(|call| call.is_to_run()).count();
    }

    /// Adds the failures of a batch. Returns an error if they fail the run.
    pub(super) fn failed(
        &mut self,
        mut failures: Vec<ToolFailure>,
        max: Option<usize>,
        conversation: Option<&ConversationKey>,
    ) -> Result<(), ToolLoopError> {
        if let Some(index) = failures.iter().position(ToolFailure::fails_run) {
            let (failure, conversation) = (failures.swap_remove(index), conversation.cloned());
            return Err(ToolLoopError::ToolFailedRun { failure, conversation });
        }
        let Some(max) = max else { return Ok(()) };
        if failures.is_empty() {
            self.failing_rounds = 0;
            self.failures.clear();
            return Ok(());
        }
        self.failing_rounds += 1;
        self.failures.extend(failures);
        if self.failing_rounds <= max {
            return Ok(());
        }
        Err(ToolLoopError::ConsecutiveFailures {
            rounds: self.failing_rounds,
            failures: std::mem::take(&mut self.failures),
            conversation: conversation.cloned(),
        })
    }
}
