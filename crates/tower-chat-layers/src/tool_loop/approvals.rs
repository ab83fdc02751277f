//! Finds the pending calls that a request approves or rejects. A pending call waits for this
//! decision of the caller. A batch is the calls of one answer of the model.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ApprovalResponse, CallPosition, ChatRequest, ConversationKey, Message, Role, ToolResult,
    ToolStatus,
};

use super::{
    ToolLoopError, error::CallNotRun, resume::apply_recorded_outcomes, transcript::Transcript,
};
use crate::{
    approval::{decisions_by_request, decisions_of, find_request, trailing_result_of},
    next_step::{Action, CallRules, PlannedCall, Refusal},
    replay::{PendingApproval, PendingBatch, Replay},
    run::{CallOutcome, Run, UnseenResult, Waiting, waiting_of},
    tool::{PendingCall, ToolReport, Tools},
};

/// Checks the decisions in a request before any message of its run is stored.
pub(crate) fn check(run: &Run, request: &ChatRequest) -> Result<(), ToolLoopError> {
    let mut own = Replay::lenient();
    own.push_from(request.messages(), request.history_len());
    decide(request, run, own.pending_batches(), None).map(drop)
}

/// Returns the pending calls that the decisions in a request approve or reject, in the order of the
/// calls. `sent` contains the batches with pending calls among the messages of the request. Stored
/// batches with pending calls are included. If `rules` is `None`, no tool can run, and pending
/// calls of the caller's tools are not detected.
///
/// A batch without any decision remains pending. If the caller executes a part of a batch, an
/// approval request that is not required needs no decision. Its call then runs with the batch,
/// unless the caller rejects the call. A call runs with the arguments in its approval request,
/// unless the decision contains other arguments.
///
/// A decision is old if an answer or a result follows the decision among the request's messages. An
/// old decision has an effect only if its call is still pending.
///
/// If a decided call already has a result and no answer of the model follows the result, the call
/// does not run again. The run continues by sending the result to the model.
///
/// # Errors
///
/// Returns an error if a decision is missing, contradictory, unknown or too late, or if results of
/// the caller are missing. The variants of [`ToolLoopError`] describe each case.
pub(super) fn decide(
    request: &ChatRequest,
    run: &Run,
    sent: Vec<PendingBatch>,
    rules: Option<&CallRules<'_>>,
) -> Result<Vec<PlannedCall>, ToolLoopError> {
    // A request that is sent again does not contain the stored part of its input.
    let stored = run.log().conversation.stored_approvals();
    let own = || request.messages().iter_from(request.history_len());
    let mut decisions = decisions_by_request(stored.iter().chain(own()));
    if decisions.is_empty() {
        return Ok(Vec::new());
    }
    let conversation = || request.conversation().map(|conversation| conversation.key.clone());
    let last = last_decisions(own());
    if let Some(id) = contradicted(&last) {
        let (id, conversation) = (id.to_owned(), conversation());
        return Err(ToolLoopError::ApprovalContradicted { id, conversation });
    }
    let (mut calls, mut missing, mut missing_results) = (Vec::new(), Vec::new(), Vec::new());
    let stored =
        run.store().map(|_| run.log().conversation.pending_batches(own())).unwrap_or_default();
    for PendingBatch { waiting, returned, has_returned } in stored.into_iter().chain(sent) {
        // Each decision is applied once, even if its approval request is both stored and in the
        // request.
        let take = |waiting: PendingApproval| {
            let decision = decisions.remove(waiting.request.id.as_str());
            (waiting, decision)
        };
        let decided: Vec<_> = waiting.into_iter().map(take).collect();
        if decided.iter().all(|(_, decision)| decision.is_none()) {
            continue;
        }
        let returned = returned.into_iter();
        missing_results.extend(returned.map(|(tool, call_id)| CallNotRun { tool, call_id }));
        for (waiting, decision) in decided {
            let is_rejected = decision.is_some_and(|decision| !decision.approved);
            let name = &waiting.request.call.name;
            if decision.is_some() {
                check_open(run, &waiting, conversation())?;
            }
            if decision.is_none() && (waiting.request.required || !has_returned) {
                missing.push(waiting.request.id);
            } else if !is_rejected && rules.is_some_and(|rules| rules.is_callers(name)) {
                let (tool, call_id) = (name.clone(), waiting.call_id);
                missing_results.push(CallNotRun { tool, call_id });
            } else {
                calls.push(planned(waiting, decision, rules));
            }
        }
    }
    let ids = last.iter().map(|decision| decision.request_id.as_str());
    for id in ids.filter(|id| decisions.contains_key(id)) {
        let unseen = run.log().conversation.unseen_result_of(id);
        match unseen {
            Some(UnseenResult::InReplay) => {}
            Some(UnseenResult::SendAgain(known)) => calls.push(known_already(*known)),
            None if is_unseen_among(own(), id) => {}
            None => return Err(not_waiting(request, run, id, conversation())),
        }
    }
    if !missing.is_empty() {
        return Err(ToolLoopError::ApprovalMissing { ids: missing, conversation: conversation() });
    }
    if !missing_results.is_empty() {
        let (calls, conversation) = (missing_results, conversation());
        return Err(ToolLoopError::ResultsMissing { calls, conversation });
    }
    Ok(calls)
}

/// Checks that the call still waits for a decision.
fn check_open(
    run: &Run,
    waiting: &PendingApproval,
    conversation: Option<ConversationKey>,
) -> Result<(), ToolLoopError> {
    let id = waiting.request.id.clone();
    match waiting_of(run, waiting) {
        Waiting::Open => Ok(()),
        Waiting::InOriginal => Err(ToolLoopError::ApprovalUnknown { id, conversation }),
        Waiting::Answered => Err(ToolLoopError::ApprovalAnswered { id, conversation }),
        Waiting::Held(until) => Err(ToolLoopError::ApprovalHeld { id, until, conversation }),
    }
}

/// Returns the decisions after the last result and the last answer of the model.
fn last_decisions<'a>(
    messages: impl Iterator<Item = &'a Arc<Message>>,
) -> Vec<&'a ApprovalResponse> {
    let mut last = Vec::new();
    for message in messages {
        if matches!(message.role, Role::Assistant | Role::Tool) {
            last.clear();
        }
        last.extend(decisions_of(message));
    }
    last
}

/// Returns the first approval request about which the decisions differ.
fn contradicted<'a>(decisions: &[&'a ApprovalResponse]) -> Option<&'a str> {
    let mut decided = HashMap::new();
    decisions.iter().find_map(|decision| {
        let id = decision.request_id.as_str();
        let decision = (decision.approved, decision.arguments.as_deref());
        (*decided.entry(id).or_insert(decision) != decision).then_some(id)
    })
}

/// Returns whether the messages contain an approval request and the result of its call, but no
/// answer after the result.
fn is_unseen_among<'a>(messages: impl Iterator<Item = &'a Arc<Message>>, id: &str) -> bool {
    let messages: Vec<_> = messages.collect();
    let found = messages.iter().find_map(|message| {
        let (index, request) = find_request(message, id)?;
        Some((message.id.map(|message| CallPosition { message, index }), request))
    });
    found.is_some_and(|(call, request)| {
        trailing_result_of(messages.iter().rev().copied(), call, request).is_some()
    })
}

/// Returns a planned call with its earlier result, which the service has not received.
fn known_already((waiting, result): (PendingApproval, ToolResult)) -> PlannedCall {
    let report = ToolReport::not_run(match result.is_error {
        true => ToolStatus::Error,
        false => ToolStatus::Ok,
    });
    let PendingApproval { call_position, request, call_id } = waiting;
    let pending = PendingCall::of_earlier_run(request.call, call_id, call_position);
    PlannedCall { pending, action: Action::Reuse(Box::new((result, report))) }
}

fn not_waiting(
    request: &ChatRequest,
    run: &Run,
    id: &str,
    conversation: Option<ConversationKey>,
) -> ToolLoopError {
    let is_sent = request.messages().iter().any(|message| find_request(message, id).is_some());
    let id = id.to_owned();
    if is_sent || run.log().conversation.holds_approval_request(&id) {
        ToolLoopError::ApprovalAnswered { id, conversation }
    } else {
        ToolLoopError::ApprovalUnknown { id, conversation }
    }
}

fn planned(
    waiting: PendingApproval,
    decision: Option<&ApprovalResponse>,
    rules: Option<&CallRules<'_>>,
) -> PlannedCall {
    let PendingApproval { call_position, request, call_id } = waiting;
    let mut pending = PendingCall::of_earlier_run(request.call, call_id, call_position);
    match decision {
        Some(decision) if !decision.approved => {
            return PlannedCall::rejected(pending, decision.reason.clone());
        }
        Some(ApprovalResponse { arguments: Some(arguments), .. }) => {
            pending = pending.with_arguments_of_decision(arguments);
        }
        Some(_) | None => {}
    }
    match rules {
        Some(rules) => PlannedCall::run(pending, rules.tools),
        None => PlannedCall::run(pending, &Tools::new()),
    }
}

/// The pending calls that a request decides about.
#[derive(Default)]
pub(super) struct Approved {
    pub(super) calls: Vec<PlannedCall>,
    /// The calls that cannot run with their stored arguments. If there are any, `calls` is empty,
    /// because the refusals must be recorded before another call runs.
    pub(super) refused: Vec<PlannedCall>,
}

/// Returns the pending calls that the request's own messages decide about. Calls with a known
/// outcome do not run again.
pub(super) fn approved(
    request: &ChatRequest,
    run: &Run,
    transcript: &Transcript,
    rules: &CallRules<'_>,
) -> Result<Approved, ToolLoopError> {
    let sent = transcript.pending_batches();
    let mut calls = decide(request, run, sent, Some(rules))?;
    if !calls.is_empty() {
        let mut known = HashMap::new();
        let mut refused = Vec::new();
        for call in &calls {
            let Some(position) = call.pending.position() else { continue };
            let mut of_call = run.log().prior_attempts.call(position);
            let runs_as_stored = call.is_to_run() && !call.pending.has_arguments_of_decision();
            if runs_as_stored && run.log().conversation.has_changed_arguments(position) {
                if of_call.is_none() && !call.accepts_stored_arguments() {
                    refused.push(PlannedCall::run(call.pending.clone(), rules.tools));
                }
                of_call.get_or_insert(CallOutcome::NeverStarted).lose_arguments();
            }
            known.extend(of_call.map(|of_call| (position, of_call)));
        }
        if !refused.is_empty() {
            return Ok(Approved { calls: Vec::new(), refused });
        }
        apply_recorded_outcomes(&mut calls, &known, run, &request.extensions)?;
        for call in &calls {
            match (&call.action, call.pending.position()) {
                (Action::Run(tool), Some(position)) => {
                    run.log().call_records.hooks.pin(position, Some(tool.clone()))
                }
                (Action::Refuse(Refusal::UnknownTool), Some(position)) => {
                    run.log().call_records.hooks.pin(position, None);
                }
                (Action::Run(_) | Action::Refuse(_) | Action::Reuse(_), _) => {}
            }
        }
    }
    Ok(Approved { calls, refused: Vec::new() })
}
