//! Which waiting calls a request answers.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ApprovalResponse, CallPosition, ChatRequest, ConversationKey, Message, Part, Role, ToolResult,
    ToolStatus,
};

use super::{ToolLoopError, error::CallNotRun, resume, transcript::Transcript};
use crate::{
    approval::{find_request, trailing_result_of},
    next_step::{Action, CallRules, PlannedCall, Refusal},
    policy::UnknownCalls,
    replay::{PendingApproval, PendingBatch, Replay},
    run::{CallOutcome, Run, UnseenResult, Waiting},
    tool::{PendingCall, ToolReport, Tools},
};

/// Checks the decisions of a request before anything of its run is stored.
///
/// # Errors
///
/// As [`decide`].
pub(crate) fn check(run: &Run, request: &ChatRequest) -> Result<(), ToolLoopError> {
    let mut own = Replay::lenient();
    own.push_from(&request.messages, request.new_from);
    decide(request, Some(run), own.pending_batches(), None).map(drop)
}

/// The waiting calls that the decisions in a request let run, or refuse, in the order in which they
/// were asked. `sent` are those that wait among the messages of the request. Without `rules` nothing
/// can be run, and calls of the caller's tools that wait are not noticed.
///
/// Batches without any decision go on waiting. Where the caller executes a part of a batch, a request
/// that is not required needs no decision: its call runs with the batch, unless it is rejected. What runs is the call of the request for approval,
/// never anything out of a decision. A decision that something was answered to among the messages
/// of the request is part of what happened before; it counts if its call still waits. One about a
/// call whose result is the last that is known goes on from there: nothing is run again, and the
/// model is shown the result.
///
/// # Errors
///
/// [`ToolLoopError::ApprovalMissing`] for a batch that is decided in part, and
/// [`ToolLoopError::ResultsMissing`] for one with calls that the caller has not answered;
/// [`ToolLoopError::ApprovalAnswered`] and [`ToolLoopError::ApprovalUnknown`] for a decision about a
/// call that has its result, or about a request that is nowhere, or waits in the conversation of
/// which this one is a copy; [`ToolLoopError::ApprovalHeld`] for one about a call that another run is at
/// work on; [`ToolLoopError::ApprovalContradicted`] for two that differ.
pub(super) fn decide(
    request: &ChatRequest,
    run: Option<&Run>,
    sent: Vec<PendingBatch>,
    rules: Option<&CallRules<'_>>,
) -> Result<Vec<PlannedCall>, ToolLoopError> {
    // What is stored of the input of a run that is sent again is not in its request.
    let stored = run.map(|run| run.log().stored_approvals()).unwrap_or_default();
    let own = || request.messages.iter_from(request.new_from);
    let mut decisions = decisions(stored.iter().chain(own()));
    if decisions.is_empty() {
        return Ok(Vec::new());
    }
    let conversation = || request.conversation().map(|conversation| conversation.key.clone());
    if let Some(id) = contradicted(own()) {
        let (id, conversation) = (id.to_owned(), conversation());
        return Err(ToolLoopError::ApprovalContradicted { id, conversation });
    }
    let mut calls = Vec::new();
    let (mut missing, mut missing_results) = (Vec::new(), Vec::new());
    let stored = run.map(|run| run.log().pending_batches(own())).unwrap_or_default();
    for PendingBatch { waiting, returned, has_returned } in stored.into_iter().chain(sent) {
        // Taken out, so that a request that is both stored and sent again counts once.
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
    for id in new_decisions(own()) {
        if !decisions.contains_key(id) {
            continue;
        }
        match run.and_then(|run| run.log().unseen_result_of(id)) {
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

/// Checks that a call can still be decided about.
///
/// # Errors
///
/// [`ToolLoopError::ApprovalUnknown`] if it waits in the conversation of which this one is a copy;
/// [`ToolLoopError::ApprovalAnswered`] if it has its result; [`ToolLoopError::ApprovalHeld`] if another run
/// is at work on it.
fn check_open(
    run: Option<&Run>,
    waiting: &PendingApproval,
    conversation: Option<ConversationKey>,
) -> Result<(), ToolLoopError> {
    let id = waiting.request.id.clone();
    match run.map_or(Waiting::Open, |run| run.waiting(waiting)) {
        Waiting::Open => Ok(()),
        Waiting::InOriginal => Err(ToolLoopError::ApprovalUnknown { id, conversation }),
        Waiting::Answered => Err(ToolLoopError::ApprovalAnswered { id, conversation }),
        Waiting::Held(until) => Err(ToolLoopError::ApprovalHeld { id, until, conversation }),
    }
}

/// The decisions in these messages. The first about a request counts.
fn decisions<'a>(
    messages: impl Iterator<Item = &'a Arc<Message>>,
) -> HashMap<&'a str, &'a ApprovalResponse> {
    let mut decisions = HashMap::new();
    for part in messages.flat_map(|message| &message.parts) {
        if let Part::ApprovalResponse(decision) = part {
            decisions.entry(decision.request_id.as_str()).or_insert(decision);
        }
    }
    decisions
}

/// The decisions of the last messages: no result and no word of the model stands behind them.
fn last_decisions<'a>(
    messages: impl Iterator<Item = &'a Arc<Message>>,
) -> Vec<&'a ApprovalResponse> {
    let mut last = Vec::new();
    for message in messages {
        if matches!(message.role, Role::Assistant | Role::Tool) {
            last.clear();
        }
        last.extend(message.parts.iter().filter_map(|part| match part {
            Part::ApprovalResponse(decision) => Some(decision),
            _ => None,
        }));
    }
    last
}

/// The requests that the last messages decide about.
fn new_decisions<'a>(messages: impl Iterator<Item = &'a Arc<Message>>) -> Vec<&'a str> {
    let decisions = last_decisions(messages).into_iter();
    decisions.map(|decision| decision.request_id.as_str()).collect()
}

/// The first request that the last messages both approve and reject.
fn contradicted<'a>(messages: impl Iterator<Item = &'a Arc<Message>>) -> Option<&'a str> {
    let mut decided: HashMap<&str, bool> = HashMap::new();
    last_decisions(messages).into_iter().find_map(|decision| {
        let id = decision.request_id.as_str();
        let first = *decided.entry(id).or_insert(decision.approved);
        (first != decision.approved).then_some(id)
    })
}

/// Whether these messages hold an approval request, and the result of its call with no word of the
/// model behind it: the run that the call was approved for goes on from there.
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

/// A call that was run before, and whose result the service has not been sent.
fn known_already((waiting, result): (PendingApproval, ToolResult)) -> PlannedCall {
    let report = ToolReport::not_run(match result.is_error {
        true => ToolStatus::Error,
        false => ToolStatus::Ok,
    });
    let PendingApproval { call_position, request, call_id } = waiting;
    let pending = PendingCall::alone(request.call, call_id, call_position);
    PlannedCall { pending, action: Action::Reuse(Box::new((result, report))) }
}

/// Why a decision about a request has no effect.
fn not_waiting(
    request: &ChatRequest,
    run: Option<&Run>,
    id: &str,
    conversation: Option<ConversationKey>,
) -> ToolLoopError {
    let is_sent = request.messages.iter().any(|message| find_request(message, id).is_some());
    let id = id.to_owned();
    if is_sent || run.is_some_and(|run| run.log().holds_approval_request(&id)) {
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
    let pending = PendingCall::alone(request.call, call_id, call_position);
    match decision {
        Some(decision) if !decision.approved => {
            PlannedCall::rejected(pending, decision.reason.clone())
        }
        Some(_) | None => match rules {
            Some(rules) => PlannedCall::run(pending, rules.tools),
            None => PlannedCall::run(pending, &Tools::new()),
        },
    }
}

/// The waiting calls that a request answers.
#[derive(Default)]
pub(super) struct Approved {
    pub(super) calls: Vec<PlannedCall>,
    /// Those of them that cannot be run with what is stored, and of which no record says so yet.
    /// Nothing of the batch runs until one does.
    pub(super) refused: Vec<PlannedCall>,
}

/// The waiting calls that the request's own messages decide about: stored ones, and ones among
/// them. What is known of them already is not run again.
pub(super) fn approved(
    request: &ChatRequest,
    run: Option<&Run>,
    transcript: &Transcript,
    rules: &CallRules<'_>,
) -> Result<Approved, ToolLoopError> {
    let sent = transcript.pending_batches(request);
    let mut calls = decide(request, run, sent, Some(rules))?;
    if let (Some(run), false) = (run, calls.is_empty()) {
        let mut known = HashMap::new();
        let mut refused = Vec::new();
        for call in &calls {
            let Some(position) = call.pending.position() else { continue };
            let mut of_call = run.log().known_approved(position);
            if matches!(call.action, Action::Run(_)) && run.log().has_changed_arguments(position) {
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
        let policy = request.extensions.get::<UnknownCalls>().cloned();
        let policy = policy.unwrap_or_else(|| run.unknown_calls());
        resume::settle(&mut calls, &known, &policy, (run.key(), run.id()))?;
        for call in &calls {
            match (&call.action, call.pending.position()) {
                (Action::Run(tool), Some(position)) => {
                    run.log().pin_tool(position, Some(tool.clone()))
                }
                (Action::Refuse(Refusal::UnknownTool), Some(position)) => {
                    run.log().pin_tool(position, None);
                }
                (Action::Run(_) | Action::Refuse(_) | Action::Reuse(_), _) => {}
            }
        }
    }
    Ok(Approved { calls, refused: Vec::new() })
}
