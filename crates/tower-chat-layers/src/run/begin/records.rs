//! Reads the record of a conversation's tool calls when a run begins.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    CallPosition, ConversationKey, Message, MessageId, ToolInvocation, ToolStatus,
    store::{CallSelection, History, HistoryStore, StoreError},
};

use crate::{
    replay::Replay,
    run::prior_attempts::{PriorAttempts, Recorded},
};

/// Returns the number of tool calls that earlier attempts have started: calls in the stored
/// messages `added` of the run, and approved calls of earlier runs that these messages answer.
pub(super) async fn tool_calls_before(
    store: &Arc<dyn HistoryStore>,
    key: &ConversationKey,
    history: &History,
    added: Option<&[Arc<Message>]>,
) -> Result<usize, StoreError> {
    let added = added.unwrap_or_default();
    let asking: HashSet<MessageId> = added
        .iter()
        .filter(|message| message.calls().next().is_some())
        .filter_map(|message| message.id)
        .collect();
    let results = added.iter().flat_map(|message| message.results());
    let answered: HashSet<CallPosition> = results.filter_map(|result| result.call).collect();
    if asking.is_empty() && answered.is_empty() {
        return Ok(0);
    }
    let messages: HashSet<MessageId> =
        answered.iter().map(|call| call.message).chain(asking.iter().copied()).collect();
    let is_it = |message: &Arc<Message>| message.id.is_some_and(|id| messages.contains(&id));
    let sequences = history.numbered().filter(|(_, message)| is_it(message));
    let which = CallSelection::in_messages(sequences.map(|(sequence, _)| sequence));
    let rows = store.calls(key, &which).await?.found;
    let is_of_run = |call: &ToolInvocation| {
        let position = CallPosition { message: call.message, index: call.sequence_index };
        asking.contains(&call.message) || answered.contains(&position)
    };
    let of_run = rows.iter().filter(|(_, call)| is_of_run(call));
    Ok(of_run.filter(|(_, call)| Recorded::from(call).has_run()).count())
}

/// Returns the recorded state of the calls that wait for approval.
pub(super) async fn prior_attempts(
    store: &Arc<dyn HistoryStore>,
    key: &ConversationKey,
    history: &History,
    replay: &Replay,
) -> Result<PriorAttempts, StoreError> {
    let which = CallSelection::WithStatus(ToolStatus::PendingApproval);
    let mut known = store.calls(key, &which).await?.found;
    let waiting: HashSet<MessageId> = replay
        .approvals_in_order()
        .iter()
        .flatten()
        .filter_map(|call| Some(call.call_position?.0))
        .collect();
    let is_waiting = |message: &Arc<Message>| message.id.is_some_and(|id| waiting.contains(&id));
    let asking = history.numbered().filter(|(_, message)| is_waiting(message));
    let asking: Vec<u64> = asking.map(|(sequence, _)| sequence).collect();
    if !asking.is_empty() {
        let closed = store.calls(key, &CallSelection::in_messages(asking)).await?.found;
        known.extend(closed.into_iter().filter(|(_, call)| !call.status.is_open()));
    }
    // A row with a later state of the call may be in the outbox.
    let message = |sequence| history.message(sequence).cloned();
    let unsaved = store.handle().unsaved(key);
    let unsaved = unsaved.iter().flat_map(|write| write.tools());
    let unsaved = unsaved.filter(|row| row.status == ToolStatus::PendingApproval);
    let known = known.into_iter().map(|(_, call)| call);
    Ok(known.chain(unsaved.filter_map(|row| row.resolve(message).ok())).collect())
}
