//! Decides for the calls of an earlier attempt whether their tools run again. An attempt is one
//! execution of a run. The record of tool calls (one row for each call) contains the states of
//! these calls.

use std::{collections::HashMap, time::SystemTime};

use tower_chat_core::{ToolResult, ToolStatus};

use super::{ToolLoopError, execute::result};
use crate::{
    next_step::{Action, PlannedCall},
    policy::{UnknownAnswer, UnknownCall, UnknownCalls},
    replay::INTERRUPTED,
    run::{CallOutcome, Run},
    tool::{CallOfRun, ResultSource, ToolOutcome, ToolOutput, ToolReport, idempotency_key},
};

/// The result text of an approved or interrupted call whose arguments were not stored.
const ARGUMENTS_NOT_KEPT: &str = "The call was not run: its arguments were not stored.";

impl PlannedCall {
    /// Returns the outcome of an approved call whose arguments were not stored. Its result is only
    /// recorded, and therefore contains no position of the call.
    pub(super) fn refusal_for_changed_arguments(&self) -> Option<ToolOutcome> {
        let mut result = ToolResult::error(self.pending.id(), ARGUMENTS_NOT_KEPT);
        result.name = Some(self.pending.name().to_owned());
        Some((self.pending.position()?, result, ToolReport::not_run(ToolStatus::RejectedArguments)))
    }

    pub(super) fn accepts_stored_arguments(&self) -> bool {
        matches!(&self.action, Action::Run(tool) if tool.definition().accepts_stored_arguments)
    }

    /// Adds the result of a call that may or may not have run: `output` or, without it, an error
    /// that reports the unknown outcome.
    fn answer_unknown(&mut self, started_at: Option<SystemTime>, output: Option<ToolOutput>) {
        let mut report = ToolReport::not_run(ToolStatus::Interrupted);
        report.started_at = started_at;
        let Some(output) = output else {
            return self.answer_with(report, ToolOutput::error(INTERRUPTED));
        };
        report.status = if output.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        report.source = ResultSource::Tool;
        self.answer_with(report, output);
    }

    fn answer_with(&mut self, report: ToolReport, output: ToolOutput) {
        let result = result(&self.pending, output);
        self.action = Action::Reuse(Box::new((result, report)));
    }
}

/// Applies the recorded states of calls before the calls run. A finished call does not run again. A
/// call with an unknown outcome runs again only if its tool declares that this is safe. Otherwise
/// the policy decides. A policy in the extensions of the request replaces the policy of the run.
pub(super) fn apply_recorded_outcomes(
    calls: &mut [PlannedCall],
    known: &HashMap<CallOfRun, CallOutcome>,
    run: &Run,
    extensions: &http::Extensions,
) -> Result<(), ToolLoopError> {
    let policy = extensions.get().unwrap_or(&run.policy().journal.unknown_calls);
    let (key, run) = (run.key(), run.id());
    let mut refused = Vec::new();
    for call in calls {
        let Some(position) = call.pending.position() else { continue };
        let (started_at, has_arguments) = match known.get(&position) {
            None | Some(CallOutcome::NeverStarted) => continue,
            Some(CallOutcome::Finished(finished)) => {
                call.action = Action::Reuse(finished.clone());
                continue;
            }
            Some(CallOutcome::WithoutArguments(None)) if call.accepts_stored_arguments() => {
                continue;
            }
            Some(CallOutcome::WithoutArguments(None)) => {
                let report = ToolReport::not_run(ToolStatus::Interrupted);
                call.answer_with(report, ToolOutput::error(ARGUMENTS_NOT_KEPT));
                continue;
            }
            Some(CallOutcome::WithoutArguments(started_at)) => {
                (*started_at, call.accepts_stored_arguments())
            }
            Some(CallOutcome::Started(started_at)) => (*started_at, true),
        };
        if let Action::Run(tool) = &call.action
            && tool.definition().safe_to_retry
            && has_arguments
        {
            continue;
        }
        let unknown = UnknownCall {
            key: key.clone(),
            run,
            tool: call.pending.name().to_owned(),
            call_id: call.pending.id().to_owned(),
            arguments: call.pending.call().arguments.clone(),
            idempotency_key: idempotency_key(position),
            started_at,
        };
        let answer = match policy {
            UnknownCalls::Answer => UnknownAnswer::Unknown,
            UnknownCalls::Fail => UnknownAnswer::Fail,
            UnknownCalls::Ask(ask) => ask(&unknown),
        };
        match answer {
            UnknownAnswer::RunAgain if has_arguments => {}
            UnknownAnswer::Fail => refused.push(unknown),
            UnknownAnswer::Unknown | UnknownAnswer::RunAgain => {
                call.answer_unknown(started_at, None)
            }
            UnknownAnswer::Output(output) => call.answer_unknown(started_at, Some(*output)),
        }
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(ToolLoopError::UnknownCalls { calls: refused, conversation: Some(key.clone()) })
    }
}
