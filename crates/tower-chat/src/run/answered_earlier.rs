//! Calls that readers see, and that staged results answer.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message, MessageId, ToolInvocation, ToolResult, ToolStatus,
    store::{
        CallPlace, History, HistoryStore, InvocationQuery, RecordedResult, StoreError, ToolRecord,
    },
};

use super::CallOfRun;
use crate::replay::Replay;

/// The rows that put the staged results of calls in the visible history in place. They belong to
/// the commit, since nobody could resolve them before; whoever takes a run up, or ends it, has to
/// make them anew.
///
/// # Errors
///
/// If the record of the calls cannot be read.
pub(crate) async fn rows_of_calls_answered_earlier(
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
    let mut calls: HashMap<CallOfRun, &ToolInvocation> = HashMap::new();
    for (_, call) in &known {
        calls.entry((call.message, call.sequence_index as usize)).or_insert(call);
    }
    let row = |answered: Answered| calls.get(&answered.call).map(|call| answered.row(call));
    Ok(answered.into_iter().filter_map(row).collect())
}

/// A visible call with the staged result that answers it.
struct Answered {
    call: CallOfRun,
    /// The number of the message that holds the call.
    sequence: u64,
    place: CallPlace,
    result: ToolResult,
}

impl Answered {
    fn row(self, call: &ToolInvocation) -> ToolRecord {
        let place = CallPlace { sequence: self.sequence, index: call.sequence_index };
        let mut row = ToolRecord::pending(place, call.round_index, &*call.call_id, &call.name);
        row.status = status(call, &self.result);
        row.result = RecordedResult::InMessage(self.place);
        row.error.clone_from(&call.error);
        row.started_at = call.started_at;
        row.finished_at = call.finished_at;
        row
    }
}

/// How a call has ended, by what is known of it and the result that was staged.
fn status(call: &ToolInvocation, result: &ToolResult) -> ToolStatus {
    let is_unknown = call.result.is_none() && call.started_at.is_some();
    let was_never_begun = call.result.is_none() && call.started_at.is_none();
    match (call.status, result.is_error) {
        (ToolStatus::PendingApproval, true) if is_unknown => ToolStatus::Interrupted,
        (ToolStatus::PendingApproval, false) if was_never_begun => ToolStatus::RejectedByApproval,
        (_, true) => ToolStatus::Error,
        (_, false) => ToolStatus::Ok,
    }
}

fn answered(visible: &History, staged: &[Arc<Message>]) -> Vec<Answered> {
    if staged.iter().all(|message| message.results().next().is_none()) {
        return Vec::new();
    }
    let mut replay = Replay::lenient();
    replay.push_from(&visible.messages, 0);
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
            let Some(call) = asked.map(|asked| asked.place) else { continue };
            let Some(&sequence) = messages.get(&call.0) else { continue };
            let place = CallPlace { sequence: result_in, index };
            answered.push(Answered { call, sequence, place, result: result.clone() });
        }
    }
    answered
}
