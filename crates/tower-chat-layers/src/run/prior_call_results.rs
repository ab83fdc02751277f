//! Finds the calls of earlier runs whose results are staged or in the input of a run, and builds
//! the rows and reports for these results. Readers see the messages with these calls, but do not
//! see staged messages before the commit.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value};
use tower_chat_core::{
    ConversationKey, Message, MessageId, ToolInvocation, ToolResult, ToolStatus,
    store::{
        CallSelection, History, HistoryStore, SequencePosition, StoreError,
        author::{RecordedResult, ToolRecord},
    },
};

use super::prior_attempts::{CallOutcome, Recorded};
use crate::{
    replay::{DanglingCalls, Replay},
    tool::{CallOfRun, ToolReport, ToolReports},
};

/// The metadata key for statuses of calls of earlier runs, in the message with their results. The
/// value contains only statuses that neither the result nor the row of a call determines.
const RESULT_STATUSES: &str = "result_statuses";

/// Stores statuses of calls of earlier runs in the message with their results. Each status has the
/// index of its result.
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

/// Returns whether the message with the result must contain the status, because the row of the call
/// does not determine it.
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

/// Returns the rows that link visible calls to their staged results. Only the commit writes these
/// rows, because readers cannot read the results before the commit. Each attempt that resumes or
/// ends the run therefore builds them again.
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
    let which = CallSelection::in_messages(sequences);
    let known = store.calls(key, &which).await?.found;
    let calls = by_call(&known);
    let row = |answered: Answered| calls.get(&answered.call).map(|call| answered.row(call));
    Ok(answered.into_iter().filter_map(row).collect())
}

pub(crate) fn by_call<T>(known: &[(T, ToolInvocation)]) -> HashMap<CallOfRun, &ToolInvocation> {
    let mut calls = HashMap::with_capacity(known.len());
    for (_, call) in known {
        calls.entry((call.message, call.sequence_index as usize)).or_insert(call);
    }
    calls
}

/// Returns, for each message in a run's input with recorded results, its index and a report for
/// each of its results. The report about a recorded result contains the recorded status and times.
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
    let which = CallSelection::in_messages(sequences);
    let known = store.calls(key, &which).await?.found;
    let known = by_call(&known);
    let answered: HashMap<SequencePosition, CallOfRun> =
        answered.iter().map(|answered| (answered.position, answered.call)).collect();
    let first = history.skipped() + history.messages.len() as u64 + 1;
    let mut reports = Vec::new();
    for (position, message) in input.iter().enumerate() {
        let sequence = first + position as u64;
        let of_result = |(index, result): (u32, &ToolResult)| {
            let position = SequencePosition { sequence, index };
            let call = known.get(answered.get(&position)?)?;
            is_recorded(call, result).then(|| Recorded::from(*call).report())
        };
        let of_message: Vec<_> =
            (0..).zip(message.results()).map(|it| (it, of_result(it))).collect();
        if of_message.iter().any(|(_, report)| report.is_some()) {
            let or_result = of_message.into_iter().map(|((_, result), report)| {
                report.unwrap_or_else(|| ToolReport::of_result(result))
            });
            reports.push((position, or_result.collect()));
        }
    }
    Ok(reports)
}

/// A call in the visible history, and its staged result.
struct Answered {
    call: CallOfRun,
    sequence: u64,
    position: SequencePosition,
    result: ToolResult,
    /// The status under [`RESULT_STATUSES`] in the message with the result.
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

fn was_not_run(status: ToolStatus) -> bool {
    status == ToolStatus::Stopped || must_be_marked(status)
}

fn is_recorded(call: &ToolInvocation, result: &ToolResult) -> bool {
    call.result.as_ref().is_some_and(|recorded| {
        recorded.content == result.content && recorded.is_error == result.is_error
    })
}

fn status(call: &ToolInvocation, result: &ToolResult) -> ToolStatus {
    let is_unknown = matches!(CallOutcome::of(call), CallOutcome::Started(_));
    match (call.status, result.is_error) {
        (ToolStatus::PendingApproval, true) if is_unknown => ToolStatus::Interrupted,
        // The message contains the recorded result, so the recorded status remains valid.
        (status, true) if was_not_run(status) && is_recorded(call, result) => status,
        (_, true) => ToolStatus::Error,
        (_, false) => ToolStatus::Ok,
    }
}

fn answered(visible: &History, staged: &[Arc<Message>]) -> Vec<Answered> {
    if staged.iter().all(|message| message.results().next().is_none()) {
        return Vec::new();
    }
    // Not a lenient replay, which would drop calls whose results follow other messages.
    let mut replay = Replay::of_history(visible, DanglingCalls::default());
    let asked = replay.push_answering(staged);
    // If two messages have the same id, the later one.
    let messages: HashMap<MessageId, u64> = visible
        .numbered()
        .filter_map(|(sequence, message)| Some((message.id?, sequence)))
        .collect();
    let mut answered = Vec::new();
    let first = visible.skipped() + visible.messages.len() as u64 + 1;
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
