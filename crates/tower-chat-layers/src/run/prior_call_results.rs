//! Calls that readers see, and that staged results answer.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value};
use tower_chat_core::{
    ConversationKey, Message, MessageId, ToolInvocation, ToolResult, ToolStatus,
    store::{
        History, HistoryStore, InvocationQuery, SequencePosition, StoreError,
        author::{RecordedResult, ToolRecord},
    },
};

use super::prior_attempts::{CallOutcome, Recorded};
use crate::{
    replay::{DanglingCalls, Replay},
    tool::{CallOfRun, ToolReport, ToolReports},
};

/// The key of the metadata of a stored message of results under which the statuses of those stand
/// that answer calls of earlier runs, where neither result nor record says them.
const RESULT_STATUSES: &str = "result_statuses";

/// Says in a message of results how the calls of earlier runs have ended that some of them answer,
/// by the positions of the results.
pub(crate) fn mark_statuses(message: &mut Arc<Message>, statuses: Vec<(u32, ToolStatus)>) {
    if statuses.is_empty() {
        return;
    }
    let statuses: Map<_, _> = statuses
        .into_iter()
        .map(|(index, status)| (index.to_string(), Value::from(status.as_str())))
        .collect();
    let metadata = &mut Arc::make_mut(message).metadata;
    metadata.insert(RESULT_STATUSES.to_owned(), Value::Object(statuses));
}

/// Whether a status has to be said where the row of the call is made anew.
pub(super) fn must_be_marked(status: ToolStatus) -> bool {
    matches!(
        status,
        ToolStatus::UnknownTool
            | ToolStatus::SkippedBudget
            | ToolStatus::RejectedArguments
            | ToolStatus::RejectedByApproval
    )
}

fn marked_status(message: &Message, index: u32) -> Option<ToolStatus> {
    let statuses = message.metadata.get(RESULT_STATUSES)?;
    statuses.get(index.to_string())?.as_str()?.parse().ok()
}

/// The rows that resolve calls in the visible history with their staged results. They belong to
/// the commit, since nobody could resolve them before; whoever takes a run up, or ends it, has to
/// make them anew.
///
/// # Errors
///
/// If the record of the calls cannot be read.
pub(crate) async fn rows_of_prior_calls(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    visible: &History,
    staged: &[Arc<Message>],
) -> Result<Vec<ToolRecord>, StoreError> {
    let answered = answered(visible, staged);
    if answered.is_empty() {
        return Ok(Vec::new());
    }
    let sequences = answered.iter().map(|answered| answered.sequence);
    let query = InvocationQuery::of(key).in_messages(sequences);
    let known = store.invocations(&query).await?.found;
    let calls = by_call(&known);
    let row = |answered: Answered| calls.get(&answered.call).map(|call| answered.row(call));
    Ok(answered.into_iter().filter_map(row).collect())
}

/// The rows of the record by their calls.
pub(crate) fn by_call<T>(known: &[(T, ToolInvocation)]) -> HashMap<CallOfRun, &ToolInvocation> {
    let mut calls = HashMap::with_capacity(known.len());
    for (_, call) in known {
        calls.entry((call.message, call.sequence_index as usize)).or_insert(call);
    }
    calls
}

/// What the record says of the results in a run's input that were taken from the record, message by
/// message, with the position of the message in the input. They are in the form in which they may be
/// stored, and their calls have run when the record says.
///
/// # Errors
///
/// If the record of the calls cannot be read.
pub(super) async fn reports_of_recorded_results(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    input: &[Arc<Message>],
) -> Result<Vec<(usize, ToolReports)>, StoreError> {
    let answered = answered(history, input);
    if answered.is_empty() {
        return Ok(Vec::new());
    }
    let sequences = answered.iter().map(|answered| answered.sequence);
    let query = InvocationQuery::of(key).in_messages(sequences);
    let known = store.invocations(&query).await?.found;
    let known = by_call(&known);
    let answered: HashMap<SequencePosition, CallOfRun> =
        answered.iter().map(|answered| (answered.position, answered.call)).collect();
    let first = history.head.pruned + history.messages.len() as u64 + 1;
    let mut reports = Vec::new();
    for (position, message) in input.iter().enumerate() {
        let sequence = first + position as u64;
        let of_result = |(index, result): (u32, &ToolResult)| {
            let position = SequencePosition { sequence, index };
            let call = known.get(answered.get(&position)?)?;
            let recorded = call.result.as_ref()?;
            let is_same =
                recorded.content == result.content && recorded.is_error == result.is_error;
            is_same.then(|| Recorded::from(*call).report())
        };
        let of_message: Vec<_> =
            (0..).zip(message.results()).map(|it| (it, of_result(it))).collect();
        if of_message.iter().any(|(_, report)| report.is_some()) {
            let or_result = of_message
                .into_iter()
                .map(|((_, result), report)| report.unwrap_or_else(|| ToolReport::of(result)));
            reports.push((position, or_result.collect()));
        }
    }
    Ok(reports)
}

/// A visible call with the staged result that answers it.
struct Answered {
    call: CallOfRun,
    /// The number of the message that holds the call.
    sequence: u64,
    position: SequencePosition,
    result: ToolResult,
    /// As the message of the result says it.
    status: Option<ToolStatus>,
}

impl Answered {
    fn row(self, call: &ToolInvocation) -> ToolRecord {
        let position = SequencePosition { sequence: self.sequence, index: call.sequence_index };
        let mut row = ToolRecord::pending(position, call.round_index, &*call.call_id, &call.name);
        row.status = self.status.unwrap_or_else(|| status(call, &self.result));
        row.result = RecordedResult::InMessage(self.position);
        row.error.clone_from(&call.error);
        row.started_at = call.started_at;
        row.finished_at = call.finished_at;
        row
    }
}

/// How a call has ended, by what is known of it and the result that was staged.
fn status(call: &ToolInvocation, result: &ToolResult) -> ToolStatus {
    let is_unknown = matches!(CallOutcome::of(call), CallOutcome::Started(_));
    match (call.status, result.is_error) {
        (ToolStatus::PendingApproval, true) if is_unknown => ToolStatus::Interrupted,
        (_, true) => ToolStatus::Error,
        (_, false) => ToolStatus::Ok,
    }
}

fn answered(visible: &History, staged: &[Arc<Message>]) -> Vec<Answered> {
    if staged.iter().all(|message| message.results().next().is_none()) {
        return Vec::new();
    }
    // A lenient replay forgets calls that are answered after other messages.
    let mut replay = Replay::of_history(visible, DanglingCalls::default());
    let asked = replay.push_answering(staged);
    // The messages of the calls: the last of each id.
    let messages: HashMap<MessageId, u64> = visible
        .numbered()
        .filter_map(|(sequence, message)| Some((message.id?, sequence)))
        .collect();
    let mut answered = Vec::new();
    let first = visible.head.pruned + visible.messages.len() as u64 + 1;
    for ((result_in, message), asked) in (first..).zip(staged).zip(asked) {
        for ((index, result), asked) in (0..).zip(message.results()).zip(asked) {
            let Some(call) = asked.map(|asked| asked.call_position) else { continue };
            let Some(&sequence) = messages.get(&call.0) else { continue };
            let position = SequencePosition { sequence: result_in, index };
            let (result, status) = (result.clone(), marked_status(message, index));
            answered.push(Answered { call, sequence, position, result, status });
        }
    }
    answered
}
