//! Finds the step at which a run of the loop begins: a service call, approved calls, or the step at
//! which an earlier attempt was interrupted. A persister is a layer below the loop that stores the
//! messages of each service call. An attempt is one execution of the run.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, LazyLock, Mutex},
};

use tower_chat_core::{BoxError, ChatRequest, Conversation, ConversationKey, Messages, RunId};

use super::{
    ToolLoopError,
    approvals::{Approved, approved},
    counters::RunCounters,
    loop_run::{LoopRun, Phase},
    outcomes::Outcomes,
    resume::apply_recorded_outcomes,
    settings::Settings,
    transcript::Transcript,
};
use crate::{
    PersistenceError,
    chat_service::ChatService,
    layers_below::{LayerKind, LayersBelow},
    next_step::{CallRules, NextStep, PlannedCall},
    run::{
        BegunBy, CallOutcome, InterruptedRun, Persister, Run, ServiceCall, WritePoint,
        is_without_calls, next_source_number, number_after, number_message, put_history_for_loop,
        run_of_layer_above, run_of_persister_above, run_without_store,
    },
    tool::{PendingCall, RunContext, SourceNumbers},
};

impl<S> LoopRun<S> {
    pub(super) fn new(
        ready: S,
        settings: Arc<Settings>,
        has_persister: bool,
        mut request: ChatRequest,
    ) -> Result<Self, BoxError> {
        let handle = request.run_handle();
        let conversation = request.conversation().cloned();
        let run = run_of(&request);
        let run_id = conversation.as_ref().map_or(run.id(), |conversation| conversation.run);
        if has_persister {
            run.log().history_in_request.remove_from(&mut request);
        } else {
            put_history_for_loop(&run, &mut request)?;
        }
        let transcript = match run.store().is_some() && has_persister {
            true => Transcript::only_unsent(&request),
            false => Transcript::with_whole_history(&request),
        };
        number_after(&run, &request);
        let tools = settings.source.tools();
        run.log().call_records.hooks.use_tools(&tools);
        let rules = CallRules {
            tools: &tools,
            callers_tools: &request.options.tools,
            unknown_tools: settings.unknown_tools,
        };
        let Approved { calls: approved, refused } = approved(&request, &run, &transcript, &rules)?;
        let approves = !approved.is_empty() || !refused.is_empty();
        if approves && !has_persister {
            // Without a persister, the service would receive the results without the history, which
            // contains their calls.
            return Err(PersistenceError::PersisterMissing { key: run.key().clone() }.into());
        }
        let interrupted = run.log().take_interrupted();
        let mut counters = RunCounters::resumed(&interrupted, &approved);
        let phase = first_phase(approved, refused, &mut counters, settings.max_calls);
        request.extensions.remove::<ServiceCall>();
        let mut extensions = request.extensions.clone();
        extensions.insert(ServiceCall { ordinal: 0 });
        if run.store().is_none() && conversation.is_some() {
            extensions.insert(run.clone());
        }
        let mut loop_run = Self {
            service: ready,
            is_ready: true,
            settings,
            context: Arc::new(RunContext {
                run: run_id,
                handle,
                source_numbers: source_numbers(run.clone(), request.messages().clone()),
                extensions: request.extensions,
            }),
            options: request.options,
            run,
            extensions,
            transcript,
            tools,
            phase,
            updates: VecDeque::new(),
            outcomes: Outcomes::default(),
            queued_in_flight: Vec::new(),
            counters,
        };
        loop_run.resume(interrupted)?;
        Ok(loop_run)
    }

    /// Continues after the response at which an earlier attempt was interrupted, if there is one.
    fn resume(&mut self, interrupted: InterruptedRun) -> Result<(), ToolLoopError> {
        let InterruptedRun { response, calls: known, .. } = interrupted;
        for message in &response {
            let message = number_message(&self.run, message.clone());
            self.transcript.push_sent(&message);
        }
        if response.is_empty() {
            return Ok(());
        }
        self.run.log().call_records.hooks.pin_answer(&response);
        let finish = Box::default();
        let is_settled = |pending: &PendingCall| {
            let known = pending.position().and_then(|position| known.get(&position));
            matches!(known, Some(CallOutcome::Finished(_)))
        };
        self.phase = match self.rules().step_after(&response, is_settled) {
            NextStep::RunTools(calls) => {
                let mut calls = self.counters.charged(calls, self.settings.max_calls);
                let extensions = &self.context.extensions;
                apply_recorded_outcomes(&mut calls, &known, &self.run, extensions)?;
                Phase::Running { calls, finish }
            }
            // Hooks have removed all calls of this response.
            NextStep::Finish if response.last().is_some_and(|last| is_without_calls(last)) => {
                Phase::Calling
            }
            NextStep::CallAgain | NextStep::ContinuePaused => Phase::Calling,
            NextStep::AskApproval | NextStep::ReturnCalls | NextStep::Finish => {
                Phase::Finishing(finish)
            }
        };
        Ok(())
    }
}

/// Returns the run that a layer above has begun, or else a run without a store.
fn run_of(request: &ChatRequest) -> Run {
    let of_loop = || {
        let without_key = || Conversation { key: ConversationKey::new("", ""), run: RunId::new() };
        let conversation = request.conversation().cloned().unwrap_or_else(without_key);
        run_without_store(conversation, BegunBy::ToolLoop)
    };
    run_of_layer_above(request).cloned().unwrap_or_else(of_loop)
}

fn first_phase(
    approved: Vec<PlannedCall>,
    refused: Vec<PlannedCall>,
    counters: &mut RunCounters,
    max_calls: Option<usize>,
) -> Phase {
    if !refused.is_empty() {
        return Phase::Refusing(refused);
    }
    if approved.is_empty() {
        return Phase::Calling;
    }
    let calls = counters.charged(approved, max_calls);
    Phase::Running { calls, finish: Box::default() }
}

/// Creates the source numbers after those in the loaded conversation and in the request.
fn source_numbers(run: Run, messages: Messages) -> SourceNumbers {
    LazyLock::new(Box::new(move || Mutex::new(next_source_number(&run, &messages))))
}

/// Finds a persister below, by polling the service for readiness. Returns `false` if the run needs
/// a persister and has none. A run that is stored at its end needs none.
///
/// Must be called before the first paid service call, and before any tool runs, including tools of
/// approved calls.
pub(super) async fn check_layers<S: ChatService>(
    ready: &mut S,
    settings: &Settings,
    below: &LayersBelow,
    request: &ChatRequest,
) -> Result<bool, BoxError> {
    let conversation = request.conversation().map(|conversation| conversation.key.clone());
    if run_of_persister_above(request).is_some() {
        return Err(ToolLoopError::PersisterAbove { conversation }.into());
    }
    if below.holds(LayerKind::PerRunPersistence) {
        return Err(ToolLoopError::PerRunPersistenceBelow { conversation }.into());
    }
    let Some(run) = run_of_layer_above(request) else { return Ok(true) };
    if run.write_point() == WritePoint::EachCall && settings.assumes_persister_below {
        return Ok(true);
    }
    if !below.holds(LayerKind::PerServiceCallPersistence) {
        // The caller may not have polled the loop's service for readiness.
        poll_fn(|cx| below.poll_ready(ready, cx)).await.map_err(Into::into)?;
    }
    let has_persister = below.holds(LayerKind::PerServiceCallPersistence);
    match run.write_point() {
        WritePoint::End => {
            run.log().persister = match has_persister {
                true => Persister::Layer,
                false => Persister::ToolLoop,
            };
            Ok(true)
        }
        WritePoint::EachCall if has_persister => Ok(true),
        WritePoint::EachCall => {
            run.policy().without_persister(run.key(), run.mode())?;
            Ok(false)
        }
    }
}
