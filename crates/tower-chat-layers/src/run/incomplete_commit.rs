//! Builds the commit of an incomplete run, when the run ends early or when another run finds the
//! run open.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    ApprovalResponse, CallPosition, ConversationKey, Message, MessageId, ToolResult, ToolStatus,
    store::{
        CallSelection, History, HistoryStore, SequencePosition, StoreError,
        author::{RecordedResult, ToolRecord},
    },
};

use super::{
    partial_text::partial_message,
    prior_attempts::CallOutcome,
    prior_call_results::{by_call, mark_statuses, must_be_marked, rows_of_prior_calls},
};
use crate::{
    approval::{answers_approvals, decisions_by_request},
    next_step::rejection,
    replay::{DanglingCalls, INTERRUPTED, PendingApproval, Replay},
    tool::{CallOfRun, ToolReport},
};

/// The messages and rows that the commit of an incomplete run adds.
pub(crate) struct IncompleteCommit {
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) rows: Vec<ToolRecord>,
}

/// Returns the messages and rows that the commit of an incomplete run adds, from the sequence
/// number `sequence` on. The messages are, in this order:
/// - a result for each call of the run without a result;
/// - the results of calls of earlier runs that the run's messages approve or reject;
/// - the text of an interrupted answer.
///
/// `tools` are the rows of the run's calls. `id_of` returns the id of the message with a sequence
/// number.
pub(crate) fn incomplete_commit<'a>(
    (tools, id_of): (impl IntoIterator<Item = &'a ToolRecord>, impl Fn(u64) -> Option<MessageId>),
    sequence: u64,
    of_prior_calls: OfPriorCalls,
    partial_text: Option<&str>,
) -> IncompleteCommit {
    let (missing, mut rows) = missing_results(tools, sequence, id_of);
    rows.extend(of_prior_calls.rows);
    // Results of decided calls are only added if this run has not called the model. `missing` is
    // then empty, and the rows of `of_prior_calls` refer to the correct sequence numbers.
    let missing = missing.into_iter().map(Arc::new);
    let partial = partial_text.map(|text| Arc::new(partial_message(text)));
    let messages = missing.chain(of_prior_calls.messages).chain(partial).collect();
    IncompleteCommit { messages, rows }
}

/// The result, for the model, of a call that was not run before its run ended.
const NEVER_RUN: &str = "The call was not run: its run was interrupted before the call started.";

/// Returns a message with the missing results of the run's calls, the messages that the tools have
/// queued, and the rows of these calls. The rows refer to the message by its sequence number
/// `sequence`.
fn missing_results<'a>(
    tools: impl IntoIterator<Item = &'a ToolRecord>,
    sequence: u64,
    id_of: impl Fn(u64) -> Option<MessageId>,
) -> (Vec<Message>, Vec<ToolRecord>) {
    let mut results = Vec::new();
    let mut queued = Vec::new();
    let mut rows = Vec::new();
    let open = tools.into_iter().filter(|row| !matches!(row.result, RecordedResult::InMessage(_)));
    for row in open.filter(|row| row.status != ToolStatus::PendingApproval) {
        let mut row = row.clone();
        let outcome = CallOutcome::of(&row);
        let mut unanswered = |status, text: &str| {
            row.status = status;
            row.error = Some(text.to_owned());
            ToolResult::error(&row.call_id, text)
        };
        let mut result = match outcome {
            CallOutcome::Finished(finished) => finished.0,
            CallOutcome::NeverStarted => unanswered(ToolStatus::Error, NEVER_RUN),
            CallOutcome::Started(_) | CallOutcome::WithoutArguments(_) => {
                unanswered(ToolStatus::Interrupted, INTERRUPTED)
            }
        };
        queued.append(&mut result.queued);
        result.call_id = Some(row.call_id.clone());
        // Call ids may not be unique, and a hook may have removed some of the calls.
        let position = |message| CallPosition { message, index: row.call.index };
        result.call = id_of(row.call.sequence).map(position);
        result.name.get_or_insert_with(|| row.name.clone());
        let index = u32::try_from(results.len()).unwrap_or(u32::MAX);
        row.result = RecordedResult::InMessage(SequencePosition { sequence, index });
        results.push(result);
        rows.push(row);
    }
    let results = (!results.is_empty()).then(|| Message::tool_results(results));
    (results.into_iter().chain(queued).collect(), rows)
}

/// The messages and rows about calls of earlier runs that the commit of an incomplete run adds.
#[derive(Debug, Default)]
pub(crate) struct OfPriorCalls {
    /// The results of decided calls, and the messages that their tools have queued.
    messages: Vec<Arc<Message>>,
    /// The rows of calls of earlier runs whose results are in `messages` or in the staged messages.
    rows: Vec<ToolRecord>,
}

/// Returns the messages and rows about calls of earlier runs, for the commit of a run with these
/// staged messages.
pub(crate) async fn of_prior_calls(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    staged: &[Arc<Message>],
) -> Result<OfPriorCalls, StoreError> {
    let has_results = |message: &Arc<Message>| message.results().next().is_some();
    if !staged.iter().any(has_results) && !answers_approvals(staged) {
        return Ok(OfPriorCalls::default());
    }
    let visible = store.load(key).await?;
    let decided = results_of_decided_calls(store, key, &visible, staged).await?;
    let (decided, queued) = decided.unzip();
    let all: Vec<_> = staged.iter().chain(&decided).cloned().collect();
    let rows = rows_of_prior_calls(store, key, &visible, &all).await?;
    Ok(OfPriorCalls {
        messages: decided.into_iter().chain(queued.into_iter().flatten()).collect(),
        rows,
    })
}

/// Returns a message with the missing results of decided calls (calls of earlier runs that the
/// staged messages approve or reject), and the messages that their tools have queued. If the record
/// contains no result, a call that was started gets an error that reports the unknown outcome. Any
/// other call gets a rejection.
///
/// If an approved call was not started, all calls of its batch remain pending, and the user can
/// approve the call again.
async fn results_of_decided_calls(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    visible: &History,
    staged: &[Arc<Message>],
) -> Result<Option<(Arc<Message>, Vec<Arc<Message>>)>, StoreError> {
    let decisions = decisions_by_request(staged);
    if decisions.is_empty() {
        return Ok(None);
    }
    let mut replay = Replay::of_history(visible, DanglingCalls::default());
    staged.iter().for_each(|message| replay.push(message));
    let decided_in = |batch: Vec<PendingApproval>| -> Vec<_> {
        let calls = batch.into_iter();
        calls
            .filter_map(|call| {
                Some((*decisions.get(&*call.request.id)?, call.call_position?, call))
            })
            .collect()
    };
    let decided: Vec<_> = replay.approvals_in_order().into_iter().map(decided_in).collect();
    let asking: HashSet<MessageId> =
        decided.iter().flatten().map(|(_, (message, _), _)| *message).collect();
    let is_it = |message: &Arc<Message>| message.id.is_some_and(|id| asking.contains(&id));
    let sequences = visible.numbered().filter(|(_, message)| is_it(message));
    let which = CallSelection::in_messages(sequences.map(|(sequence, _)| sequence));
    let known = store.calls(key, &which).await?.found;
    let known = by_call(&known);
    let waits = |(decision, call, _): &(&ApprovalResponse, CallOfRun, _)| {
        let outcome = known.get(call).map(|row| CallOutcome::of(*row));
        decision.approved && matches!(outcome, None | Some(CallOutcome::NeverStarted))
    };
    let decided = decided.into_iter().filter(|batch| !batch.iter().any(waits)).flatten();
    let mut results = Vec::new();
    let mut queued = Vec::new();
    let mut statuses = Vec::new();
    for (decision, (message, index), waiting) in decided {
        let outcome = known.get(&(message, index)).map(|row| CallOutcome::of(*row));
        let (mut result, status) = result_of_decided(outcome, decision);
        let position = u32::try_from(results.len()).unwrap_or(u32::MAX);
        statuses.extend(status.map(|status| (position, status)));
        queued.extend(std::mem::take(&mut result.queued).into_iter().map(Arc::new));
        result.call_id = Some(waiting.call_id);
        result.name.get_or_insert(waiting.request.call.name);
        result.call = u32::try_from(index).ok().map(|index| CallPosition { message, index });
        results.push(result);
    }
    if results.is_empty() {
        return Ok(None);
    }
    let mut message = Arc::new(Message::tool_results(results));
    mark_statuses(&mut message, statuses);
    Ok(Some((message, queued)))
}

/// Returns the result of a decided call, and the status of the call if its row does not determine
/// the status.
fn result_of_decided(
    outcome: Option<CallOutcome>,
    decision: &ApprovalResponse,
) -> (ToolResult, Option<ToolStatus>) {
    match outcome {
        Some(CallOutcome::Finished(finished)) => {
            let (result, ToolReport { status, .. }) = *finished;
            (result, must_be_marked(status).then_some(status))
        }
        Some(CallOutcome::Started(_) | CallOutcome::WithoutArguments(_)) => {
            (ToolResult::error("", INTERRUPTED), None)
        }
        Some(CallOutcome::NeverStarted) | None => {
            let result = ToolResult::new("", rejection(decision.reason.as_deref()));
            (result, Some(ToolStatus::RejectedByApproval))
        }
    }
}
