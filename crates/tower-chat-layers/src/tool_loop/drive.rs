//! Executes one run of the loop: service call, tools, service call, tools, ..., answer.

use std::sync::Arc;

use futures_util::stream;
use tower_chat_core::{
    Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, TruncatedStream, store::author::Slot,
};

use super::{
    ToolLoopError,
    begin::check_layers,
    loop_run::{LoopRun, Phase, Reading},
    settings::Settings,
    stop::{is_answered, refuse_stopped},
};
use crate::{
    chat_service::ChatService,
    layers_below::LayersBelow,
    run::{BegunBy, complete_run, discard_input, run_of_layer_above},
    validate::check_not_empty,
    yielding::yield_if_large,
};

/// Runs one request. The service is ready for the first service call.
pub(super) async fn run<S: ChatService + 'static>(
    ready: S,
    settings: Arc<Settings>,
    below: Arc<LayersBelow>,
    request: ChatRequest,
) -> Result<ChatResponse, BoxError> {
    if run_of_layer_above(&request).is_none() {
        check_not_empty(&request)?;
    }
    let mut ready = ready;
    let has_persister = check_layers(&mut ready, &settings, &below, &request).await?;
    let streamed = request.options.stream;
    let run = run_of_layer_above(&request).cloned();
    yield_if_large(request.messages().iter_from(request.history_len())).await;
    let mut loop_run = match LoopRun::new(ready, settings, has_persister, request) {
        Ok(loop_run) => loop_run,
        Err(error) => {
            let keeps_run =
                matches!(error.downcast_ref(), Some(ToolLoopError::UnknownCalls { .. }));
            if let (Some(run), false) = (run, keeps_run) {
                discard_input(&run).await;
            }
            return Err(error);
        }
    };
    if !streamed {
        return loop_run.collect().await;
    }
    if let Err(error) = loop_run.advance_to_first_answer().await {
        return Err(loop_run.with_added_messages(error));
    }
    if loop_run.is_complete() {
        return loop_run.collect().await;
    }
    let updates = stream::unfold(Box::new(loop_run), |mut loop_run| async move {
        let update = loop_run.next().await?;
        Some((update, loop_run))
    });
    Ok(ChatResponse::forward(updates))
}

impl<S: ChatService> LoopRun<S> {
    async fn collect(mut self) -> Result<ChatResponse, BoxError> {
        let mut messages = Vec::new();
        while let Some(update) = self.next().await {
            match update? {
                ChatUpdate::Message(message) => messages.push(message),
                ChatUpdate::Finish(finish) => return Ok(ChatResponse::whole(messages, finish)),
                _ => {}
            }
        }
        Err(TruncatedStream::default().into())
    }

    /// Advances until the first service call is answered, or the run ends before it.
    async fn advance_to_first_answer(&mut self) -> Result<(), BoxError> {
        while self.counters.service_calls == 0 && !self.is_complete() {
            self.advance().await?;
        }
        Ok(())
    }

    /// Returns whether no step of the run remains. The queue may still contain updates.
    fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Finishing(_) | Phase::Ended)
    }

    async fn next(&mut self) -> Option<Result<ChatUpdate, BoxError>> {
        loop {
            if !matches!(self.phase, Phase::Reading(Reading { holds_updates: true, .. }))
                && let Some(update) = self.updates.pop_front()
            {
                return Some(Ok(update));
            }
            if self.is_complete() {
                return match std::mem::replace(&mut self.phase, Phase::Ended) {
                    Phase::Finishing(finish) => Some(Ok(ChatUpdate::Finish(finish))),
                    _ => None,
                };
            }
            if let Err(error) = self.advance().await {
                let error = self.with_added_messages(error);
                self.end_now();
                self.updates.clear();
                return Some(Err(error));
            }
        }
    }

    /// Performs the next step. If the step ends a run that the loop has begun, stores the rest of
    /// the run before the caller receives the messages of the step.
    async fn advance(&mut self) -> Result<(), BoxError> {
        self.step().await?;
        let ends_run = self.is_complete()
            && self.run.begun_by() == BegunBy::ToolLoop
            && self.run.store().is_some()
            && !self.is_stored_answer();
        if !ends_run {
            return Ok(());
        }
        let Phase::Finishing(finish) = &mut self.phase else { return Ok(()) };
        let messages = self.transcript.added().cloned().collect();
        let answer = Answer::new(messages, std::mem::take(finish));
        let mut answer = complete_run(&self.run, Ok(Slot::unbounded()), answer, 0).await?;
        let mut log = self.run.log();
        answer.finish.saved = Some(log.saved());
        answer.finish.usage += log.take_usage_of_summaries();
        drop(log);
        self.phase = Phase::Finishing(answer.finish);
        Ok(())
    }

    async fn step(&mut self) -> Result<(), BoxError> {
        let is_stopped = self.context.handle.is_stopped();
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Calling if is_stopped => self.stop_before_call().await,
            Phase::Reading(reading) if is_stopped && !is_answered(&self.run, &self.counters) => {
                self.stop_reading(reading).await
            }
            Phase::Calling => self.call().await,
            Phase::Reading(reading) => self.read(reading).await,
            Phase::Refusing(calls) => self.refuse(&calls).await,
            Phase::Running { mut calls, finish } => {
                if is_stopped {
                    refuse_stopped(&mut calls);
                }
                self.run_tools(calls, finish).await
            }
            phase @ (Phase::Finishing(_) | Phase::Ended) => {
                self.phase = phase;
                Ok(())
            }
        }
    }
}
