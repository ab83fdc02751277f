//! Runs the calls of one batch, which consists of the calls of one answer of the model.

use std::{future::poll_fn, panic::AssertUnwindSafe, sync::Arc, task::Poll};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::task::consume_budget;
use tower_chat_core::{BoxError, Part, ToolResult, ToolStatus};
use tracing::Instrument;

use super::{
    error::{Chain, ToolFailure, ToolPanicked},
    outcomes::{Outcome, Outcomes, Started},
    settings::Settings,
};
use crate::{
    Clock, PersistenceError,
    next_step::{Action, PlannedCall},
    run::{Event, Run, position_across_attempts, tool_finished, tools_started, write_beside},
    telemetry,
    telemetry::{Measured, OpenSpan, records_content},
    tool::{
        CallOfRun, Effect, PendingCall, ResultName, ResultSource, RunContext, Tool, ToolContext,
        ToolError, ToolOutcome, ToolOutput, ToolReport,
    },
};

/// Runs the calls of one batch.
pub(super) struct Executor<'a> {
    pub(super) settings: &'a Settings,
    pub(super) context: &'a Arc<RunContext>,
    pub(super) clock: &'a Clock,
    pub(super) run: &'a Run,
    /// The index of the batch in the run, from 0.
    pub(super) round_index: usize,
}

struct CallToRun {
    /// The index among all calls of the batch, from 0.
    sequence_index: usize,
    pending: PendingCall,
    tool: Arc<dyn Tool>,
}

impl Executor<'_> {
    /// Answers the calls that need no tool, then runs the other calls. In sequential mode, no call
    /// runs after a call whose tool ends the run.
    ///
    /// Returns an error if a start or an outcome could not be stored. No further tool is then
    /// started, and `outcomes` contains the outcomes of all tools that have finished.
    pub(super) async fn execute(
        &self,
        calls: Vec<PlannedCall>,
        outcomes: &mut Outcomes,
    ) -> Result<(), PersistenceError> {
        let (calls, mut not_run) = self.answer_without_tools(calls, outcomes);
        if calls.is_empty() {
            let outcomes = std::mem::take(&mut not_run);
            write_beside(self.run, Event::ToolsNotRun { outcomes }).await?;
        }
        if outcomes.terminate && !self.settings.concurrent {
            // In an earlier attempt (execution of the run), a tool has ended the run.
            return Ok(());
        }
        let at_once = if self.settings.concurrent { calls.len() } else { 1 };
        let starts = calls
            .iter()
            .take(at_once)
            .filter_map(|call| self.recorded_position(call.pending.position()));
        let starts: Vec<_> = starts.collect();
        if !starts.is_empty() {
            tools_started(self.run, starts).await?;
        }
        if self.settings.concurrent {
            return self.execute_at_once(calls, not_run, outcomes).await;
        }
        // After the outcome of a call, `tool_finished` also stores the start of the next call.
        let nexts: Vec<_> = calls.iter().skip(1).map(|call| call.pending.position()).collect();
        let mut nexts = nexts.into_iter();
        for CallToRun { sequence_index, pending, tool } in calls {
            let position = pending.position();
            // Without this line, a batch of tools that are ready immediately would occupy the
            // worker thread.
            consume_budget().await;
            if !self.may_start((sequence_index, position), &outcomes.started) {
                break;
            }
            let outcome = self.run(sequence_index, pending, tool).await;
            let next = nexts.next().flatten();
            let ends_batch = outcome.ends_batch();
            let write = match outcome.tool_outcome_at(self.recorded_position(position)) {
                Some(tool_outcome) => {
                    let is_last = ends_batch || self.context.handle.is_stopped();
                    let next = next.filter(|_| !is_last);
                    // The write of the first outcome also contains the outcomes of the calls that
                    // did not run.
                    let beside = std::mem::take(&mut not_run);
                    Some(tool_finished(
                        self.run,
                        tool_outcome,
                        beside,
                        next,
                        outcome.result.ends_run,
                    ))
                }
                None => None,
            };
            // The outcome is added before its write is durable, because [`Outcomes::stop`]
            // must find the outcome if the run is stopped in the meantime.
            outcomes.add(sequence_index, outcome);
            if let Some(write) = write {
                write.await?;
            }
            if ends_batch {
                break;
            }
        }
        Ok(())
    }

    /// Runs all calls concurrently. Each outcome is stored in a separate write.
    async fn execute_at_once(
        &self,
        calls: Vec<CallToRun>,
        not_run: Vec<ToolOutcome>,
        outcomes: &mut Outcomes,
    ) -> Result<(), PersistenceError> {
        let to_run = calls.len();
        let (mut ended, mut durable, mut not_run) = (0, 0, not_run);
        let started = outcomes.started.clone();
        let run = async |CallToRun { sequence_index, pending, tool }| {
            let position = pending.position();
            if !self.may_start((sequence_index, position), &started) {
                return None;
            }
            Some((sequence_index, position, self.run(sequence_index, pending, tool).await))
        };
        let mut running: FuturesUnordered<_> = calls.into_iter().map(run).collect();
        let mut writes = FuturesUnordered::new();
        let mut failure = None;
        loop {
            consume_budget().await;
            let step = poll_fn(|cx| {
                // The writes are polled before the tools, because the number of durable outcomes
                // decides whether the write of the next outcome may end the run.
                if let Poll::Ready(Some(write)) = writes.poll_next_unpin(cx) {
                    return Poll::Ready(Some(Step::WriteEnded(write)));
                }
                match running.poll_next_unpin(cx) {
                    Poll::Ready(Some(ended_call)) => {
                        Poll::Ready(Some(Step::CallEnded(ended_call.map(Box::new))))
                    }
                    Poll::Ready(None) if writes.is_empty() => Poll::Ready(None),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                }
            });
            match step.await {
                None => break,
                Some(Step::WriteEnded(Ok(()))) => durable += 1,
                Some(Step::WriteEnded(Err(error))) => _ = failure.get_or_insert(error),
                // The run was stopped before the tool started.
                Some(Step::CallEnded(None)) => {}
                Some(Step::CallEnded(Some(ended_call))) => {
                    let (index, position, outcome) = *ended_call;
                    ended += 1;
                    let tool_outcome = outcome.tool_outcome_at(self.recorded_position(position));
                    // The outcome is added before its write is durable, because [`Outcomes::stop`]
                    // must find the outcome if the run is stopped in the meantime.
                    outcomes.add(index, outcome);
                    let Some(tool_outcome) = tool_outcome else { continue };
                    // The last write ends the run, but only if all other outcomes are durable.
                    let is_last = ended == to_run && durable + 1 == to_run;
                    let ends_run = outcomes.terminate && is_last;
                    // The write of the first outcome also contains the outcomes of the calls that
                    // did not run.
                    let beside = std::mem::take(&mut not_run);
                    writes.push(tool_finished(self.run, tool_outcome, beside, None, ends_run));
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns whether a tool may start, and records the start.
    fn may_start(
        &self,
        (sequence_index, position): (usize, Option<CallOfRun>),
        started: &Started,
    ) -> bool {
        if self.context.handle.is_stopped() {
            return false;
        }
        started.note_start(sequence_index, position, self.clock.now());
        if let Some(position) = position {
            self.run.log().approved_calls.note_begun(position);
        }
        true
    }

    /// Answers the calls whose tools do not run. These answers are added before the first tool
    /// starts, because the outcome of a tool may commit the run, and this commit must contain them.
    ///
    /// Returns the calls to run, and the outcomes that the run must store.
    fn answer_without_tools(
        &self,
        calls: Vec<PlannedCall>,
        outcomes: &mut Outcomes,
    ) -> (Vec<CallToRun>, Vec<ToolOutcome>) {
        let mut to_run = Vec::with_capacity(calls.len());
        let mut not_run = Vec::new();
        for (sequence_index, PlannedCall { pending, action }) in calls.into_iter().enumerate() {
            let outcome = match action {
                Action::Run(tool) => {
                    to_run.push(CallToRun { sequence_index, pending, tool });
                    continue;
                }
                Action::Refuse(refusal) => Outcome {
                    result: result(&pending, refusal.output(pending.name())),
                    report: ToolReport::not_run(refusal.status()),
                    failure: None,
                },
                Action::Reuse(reused) => self.reused(&pending, *reused),
            };
            not_run.extend(outcome.tool_outcome_at(self.recorded_position(pending.position())));
            outcomes.add(sequence_index, outcome);
        }
        (to_run, not_run)
    }

    /// Returns `position` if the run records the call.
    fn recorded_position(&self, position: Option<CallOfRun>) -> Option<CallOfRun> {
        let run = self.run;
        position.filter(|position| run.store().is_some() && run.log().records_call(*position))
    }

    async fn run(
        &self,
        sequence_index: usize,
        pending: PendingCall,
        tool: Arc<dyn Tool>,
    ) -> Outcome {
        let position = pending.position();
        let call =
            pending.with_position(position.and_then(|it| position_across_attempts(self.run, it)));
        let position_in_round = (self.round_index, sequence_index);
        let context = ToolContext::new(self.context.clone(), call, position_in_round);
        let handle = context.run_handle().clone();
        let started_at = self.clock.now();
        let answer = self.traced(&pending, run_caught(tool, context)).await;
        let mut outcome = match answer {
            Ok(output) => self.answered(&pending, output),
            Err(error) => self.failed(&pending, error),
        };
        if outcome.report.status != ToolStatus::RejectedArguments {
            outcome.report.started_at = Some(started_at);
            outcome.report.finished_at = Some(self.clock.now());
        }
        if pending.has_arguments_of_decision() {
            outcome.result.content.push(Part::text(changed_arguments(&pending.call().arguments)));
        }
        if !outcome.result.ends_run {
            outcome.result.queued = handle.take_queued_of_call();
        }
        outcome
    }

    async fn traced(
        &self,
        call: &PendingCall,
        running: impl Future<Output = Result<ToolOutput, BoxError>>,
    ) -> Result<ToolOutput, BoxError> {
        let has_content = records_content(&self.context.extensions);
        let span = telemetry::tool(call, self.context.conversation(), has_content);
        let measured = Measured::tool(call.name());
        let mut open = OpenSpan::new(span.clone(), measured);
        let answer = running.instrument(span).await;
        match &answer {
            Ok(output) => {
                let text = has_content.then(|| output.text());
                open.tool_answered(text.as_deref(), output.is_error);
            }
            Err(_) => open.tool_answered(None, true),
        }
        answer
    }

    /// Returns the outcome of a call that does not run again, because its result is from an earlier
    /// attempt, or because its earlier outcome is unknown and the policy supplies a result.
    fn reused(
        &self,
        pending: &PendingCall,
        (mut result, report): (ToolResult, ToolReport),
    ) -> Outcome {
        result.call_id = Some(pending.id().to_owned());
        result.call = pending.named_by();
        let is_failure = matches!(report.status, ToolStatus::Error | ToolStatus::RejectedArguments);
        let failure = is_failure.then(|| {
            let source = report.error.clone().unwrap_or_else(|| result.text());
            self.failure(pending, source.into())
        });
        Outcome { result, report, failure }
    }

    fn answered(&self, pending: &PendingCall, output: ToolOutput) -> Outcome {
        let failure = output.is_error.then(|| self.failure(pending, BoxError::from(output.text())));
        if output.is_error {
            // The text is not logged, because it is for the model and may contain user data.
            tracing::warn!(
                conversation = self.context.conversation().map(tracing::field::display),
                tool = pending.name(),
                call_id = pending.id(),
                "a tool answered with an error"
            );
        }
        let status = match (output.is_error, output.rejects_arguments) {
            (_, true) => ToolStatus::RejectedArguments,
            (true, false) => ToolStatus::Error,
            (false, false) => ToolStatus::Ok,
        };
        let mut report = ToolReport::with_source(ResultSource::Tool, status);
        report.error = failure.as_ref().map(|failure| failure.source.to_string());
        Outcome { result: result(pending, output), report, failure }
    }

    fn failed(&self, pending: &PendingCall, error: BoxError) -> Outcome {
        let mut report = ToolReport::with_source(ResultSource::Tool, ToolStatus::Error);
        report.error = Some(Chain(&*error).to_string());
        tracing::warn!(
            conversation = self.context.conversation().map(tracing::field::display),
            tool = pending.name(),
            call_id = pending.id(),
            error = &*error as &dyn std::error::Error,
            "a tool failed"
        );
        let text = match ToolError::effect_of(&*error) {
            Some(Effect::ForModel(text)) => text.clone(),
            Some(Effect::FailRun(_)) | None if self.settings.include_error_details => {
                format!("The tool failed: {}", Chain(&*error))
            }
            Some(Effect::FailRun(_)) | None => "The tool failed.".to_owned(),
        };
        let failure = self.failure(pending, error);
        let result = result(pending, ToolOutput::error(text));
        Outcome { result, report, failure: Some(failure) }
    }

    fn failure(&self, pending: &PendingCall, source: BoxError) -> Box<ToolFailure> {
        Box::new(ToolFailure {
            tool: pending.name().to_owned(),
            call_id: pending.id().to_owned(),
            round_index: self.round_index,
            source,
        })
    }
}

/// Returns the text that reports the arguments to the model. The call itself still contains the
/// arguments of the model, to which the service's signature of the call may belong.
fn changed_arguments(arguments: &str) -> String {
    format!("[The call was approved with other arguments. The tool was called with {arguments}]")
}

enum Step {
    CallEnded(Option<Box<(usize, Option<CallOfRun>, Outcome)>>),
    WriteEnded(Result<(), PersistenceError>),
}

async fn run_caught(tool: Arc<dyn Tool>, context: ToolContext) -> Result<ToolOutput, BoxError> {
    // A panic can only damage the state of the tool, which shares no state with the loop.
    let running = AssertUnwindSafe(async move { (*tool).call(context).await });
    match running.catch_unwind().await {
        Ok(result) => result,
        Err(payload) => Err(ToolPanicked::new(&*payload).into()),
    }
}

pub(super) fn result(pending: &PendingCall, output: ToolOutput) -> ToolResult {
    let mut result = ToolResult::of_parts(pending.id(), output.content);
    result.name = match output.name {
        ResultName::OfTool => Some(pending.name().to_owned()),
        ResultName::As(name) => name,
    };
    result.is_error = output.is_error;
    result.native = output.native;
    result.call = pending.named_by();
    result.ends_run = output.terminate;
    result
}
