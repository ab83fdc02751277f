//! The outcomes of the calls of a batch, which consists of the calls of one answer of the model.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tower_chat_core::{Message, ToolResult, ToolStatus};

use super::error::ToolFailure;
use crate::{
    next_step::{Refusal, rejection},
    tool::{CallOfRun, ToolOutcome, ToolOutput, ToolReport, ToolReports},
};

/// The outcomes of the finished calls of a batch. Consistent at every await, because the results
/// must survive the cancellation of the other calls.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Each result with the index of its call, in the order of completion.
    pub(super) results: Vec<(usize, ToolResult, ToolReport)>,
    pub(super) failures: Vec<ToolFailure>,
    pub(super) terminate: bool,
    pub(super) started: Started,
}

/// The tools that have started, by the indices of their calls in the batch.
#[derive(Debug, Clone, Default)]
pub(super) struct Started(Arc<Mutex<HashMap<usize, StartedTool>>>);

/// The position of the call, and the time at which its tool has started.
type StartedTool = (Option<CallOfRun>, SystemTime);

impl Started {
    pub(super) fn note_start(
        &self,
        sequence_index: usize,
        call: Option<CallOfRun>,
        started_at: SystemTime,
    ) {
        self.tools().insert(sequence_index, (call, started_at));
    }

    pub(super) fn started_at(&self, sequence_index: usize) -> Option<SystemTime> {
        self.tools().get(&sequence_index).map(|(_, started_at)| *started_at)
    }

    fn tools(&self) -> MutexGuard<'_, HashMap<usize, StartedTool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outcomes {
    pub(super) fn add(&mut self, sequence_index: usize, outcome: Outcome) {
        let Outcome { result, report, failure } = outcome;
        self.terminate |= result.ends_run;
        self.results.push((sequence_index, result, report));
        self.failures.extend(failure.map(|failure| *failure));
    }

    pub(super) fn answered(&self) -> HashSet<usize> {
        self.results.iter().map(|(index, ..)| *index).collect()
    }

    /// Returns the calls whose tools have started and not finished, with their start times.
    pub(super) fn unfinished(&self) -> Vec<(CallOfRun, SystemTime)> {
        let answered = self.answered();
        let started = self.started.tools();
        let unfinished = started.iter().filter(|(index, _)| !answered.contains(index));
        unfinished.filter_map(|(_, (call, started_at))| Some(((*call)?, *started_at))).collect()
    }

    /// Removes all results. Returns a message with the results in the order of the calls, their
    /// reports, and the messages that the tools have queued.
    pub(super) fn take_message(&mut self) -> Option<(Message, ToolReports, Vec<Message>)> {
        if self.results.is_empty() {
            return None;
        }
        self.started = Started::default();
        self.results.sort_by_key(|(sequence_index, ..)| *sequence_index);
        let mut reports = ToolReports::with_capacity(self.results.len());
        let mut queued = Vec::new();
        let results = std::mem::take(&mut self.results);
        let results = results.into_iter().map(|(_, mut result, report)| {
            reports.push(report);
            queued.append(&mut result.queued);
            result
        });
        let message = Message::tool_results(results);
        Some((message, reports, queued))
    }
}

/// The outcome of one call.
pub(super) struct Outcome {
    pub(super) result: ToolResult,
    pub(super) report: ToolReport,
    pub(super) failure: Option<Box<ToolFailure>>,
}

impl Outcome {
    /// Returns whether, in sequential mode, no call starts after this one.
    pub(super) fn ends_batch(&self) -> bool {
        self.result.ends_run || self.failure.as_ref().is_some_and(|failure| failure.fails_run())
    }

    pub(super) fn tool_outcome_at(&self, position: Option<CallOfRun>) -> Option<ToolOutcome> {
        Some((position?, self.result.clone(), self.report.clone()))
    }
}

impl Refusal {
    pub(super) fn status(&self) -> ToolStatus {
        match self {
            Self::UnknownTool => ToolStatus::UnknownTool,
            Self::Rejected { .. } => ToolStatus::RejectedByApproval,
            Self::OverBudget { .. } => ToolStatus::SkippedBudget,
            Self::Stopped => ToolStatus::Stopped,
            Self::CutOff => ToolStatus::RejectedArguments,
        }
    }

    pub(super) fn output(&self, tool: &str) -> ToolOutput {
        match self {
            Self::UnknownTool => ToolOutput::error(format!("There is no tool named {tool:?}.")),
            Self::Rejected { reason } => rejection(reason.as_deref()).into(),
            Self::OverBudget { budget } => ToolOutput::error(format!(
                "The call was not run: no more than {budget} tool calls are allowed here."
            )),
            Self::Stopped => ToolOutput::error(
                "The call was not run: the run was stopped before the call started.",
            ),
            Self::CutOff => ToolOutput::error(
                "The call was not run: the answer was cut off by the token limit or a filter, so that the \
                 arguments of the call are not complete. Make the call again, with shorter arguments or in \
                 parts.",
            ),
        }
    }
}
