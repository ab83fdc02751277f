//! Runs the tools of a round (the calls of one answer of the model and their results), and handles
//! their results: stores the results, adds them to the next service call, or ends the run.

use tower_chat_core::{BoxError, EndedBy, Finish};

use super::{
    ToolLoopError,
    error::CallNotRun,
    execute::Executor,
    loop_run::{LoopRun, Phase},
    stop::unless_stopped,
};
use crate::{
    chat_service::ChatService,
    next_step::PlannedCall,
    run::{Event, discard_input, tool_finished},
};

impl<S: ChatService> LoopRun<S> {
    pub(super) async fn run_tools(
        &mut self,
        calls: Vec<PlannedCall>,
        mut finish: Box<Finish>,
    ) -> Result<(), BoxError> {
        if std::mem::take(&mut self.is_ready) {
            // Releases the permit of this clone, because a tool may call the same service.
            self.service = self.service.clone();
        }
        let context = self.context.clone();
        let batch: Vec<_> = calls.iter().map(|call| call.pending.clone()).collect();
        let executor = Executor {
            settings: &self.settings,
            context: &self.context,
            clock: self.run.clock(),
            run: &self.run,
            round_index: self.counters.batches,
        };
        self.counters.batches += 1;
        let executed = executor.execute(calls, &mut self.outcomes);
        unless_stopped(&context.handle, executed).await.transpose()?;
        // In sequential mode, a tool that has ended the run was the last to start.
        let is_at_end = self.outcomes.terminate && !self.settings.concurrent;
        if context.handle.is_stopped() && !is_at_end {
            self.outcomes.stop(&batch);
        }
        self.counters.failed(
            std::mem::take(&mut self.outcomes.failures),
            self.settings.max_failing_rounds,
            self.context.conversation(),
        )?;
        self.add_results();
        self.phase = if !self.outcomes.terminate {
            Phase::Calling
        } else {
            finish.ended_by = Some(EndedBy::Tool);
            if self.counters.rounds > 0 || self.run.records_each_outcome() {
                // The caller receives these results, but no service call sends them to the model.
                self.transcript.take_unsent();
            } else {
                // These are approved calls of an earlier run, which would remain pending without
                // stored results.
                self.submit_results();
            }
            Phase::Finishing(finish)
        };
        Ok(())
    }

    /// Records that approved calls were not run, for a later run, and returns the error that ends
    /// this run.
    pub(super) async fn refuse(&mut self, calls: &[PlannedCall]) -> Result<(), BoxError> {
        let outcomes = calls.iter().filter_map(PlannedCall::refusal_for_changed_arguments);
        for outcome in outcomes.collect::<Vec<_>>() {
            tool_finished(&self.run, outcome, Vec::new(), None, false).await?;
        }
        discard_input(&self.run).await;
        let calls = calls.iter().map(|call| CallNotRun {
            tool: call.pending.name().to_owned(),
            call_id: call.pending.id().to_owned(),
        });
        let conversation = self.context.conversation().cloned();
        Err(ToolLoopError::ArgumentsNotKept { calls: calls.collect(), conversation }.into())
    }
}

impl<S> LoopRun<S> {
    pub(super) fn add_results(&mut self) {
        let Some((message, reports, queued)) = self.outcomes.take_message() else { return };
        let id = self.add_message(message);
        if let Some(id) = id {
            self.run.log().call_records.report(id, reports);
        }
        if self.outcomes.terminate {
            // No service call of this run will send the queued messages.
            return self.context.handle.put_back(queued);
        }
        for message in queued {
            let id = self.add_message(message);
            if let Some(id) = id {
                self.run.log().queued_by_tools.insert(id);
            }
        }
    }

    /// Returns whether the loop must submit the results of finished tools to the persister below if
    /// no service call has sent them. A journaled run has already stored them.
    pub(super) fn submits_results(&self) -> bool {
        self.transcript.is_kept_below() && !self.run.records_each_outcome()
    }

    pub(super) fn submit_results(&mut self) {
        if !self.transcript.is_kept_below() {
            return;
        }
        self.add_results();
        if self.transcript.has_unsent_results() {
            let messages = self.transcript.take_unsent();
            self.run.note(Event::ResultsUnsent { messages });
        }
    }
}
