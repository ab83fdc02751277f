//! What the record of tool calls says of a conversation when a run begins.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message, MessageId, ToolInvocation, ToolStatus,
    store::{History, HistoryStore, InvocationQuery, StoreError},
};

use crate::{replay::Replay, run::prior_attempts::PriorAttempts};

/// How many tool calls of these messages, which a run has stored before it was sent again, were
/// started.
pub(super) async fn tool_calls_before(
    store: &Arc<dyn HistoryStore>,
    key: &ConversationKey,
    history: &History,
    added: Option<&[Arc<Message>]>,
) -> Result<usize, StoreError> {
    let asking: HashSet<MessageId> = added
        .unwrap_or_default()
        .iter()
        .filter(|message| message.calls().next().is_some())
        .filter_map(|message| message.id)
        .collect();
    if asking.is_empty() {
        return Ok(0);
    }
    let is_it = |message: &Arc<Message>| message.id.is_some_and(|id| asking.contains(&id));
    let sequences = history.numbered().filter(|(_, message)| is_it(message));
    let query = InvocationQuery::of(key).in_messages(sequences.map(|(sequence, _)| sequence));
    let rows = store.invocations(&query).await?.found;
    let has_run = |call: &ToolInvocation| {
        call.started_at.is_some() || call.status == ToolStatus::RejectedArguments
    };
    Ok(rows.iter().filter(|(_, call)| has_run(call)).count())
}

/// What the record knows of the calls that wait for approval: those that somebody has begun, and
/// those that have a result which no message holds.
pub(super) async fn prior_attempts(
    store: &Arc<dyn HistoryStore>,
    key: &ConversationKey,
    history: &History,
    replay: &Replay,
) -> Result<PriorAttempts, StoreError> {
    let query = InvocationQuery::of(key).with_status(ToolStatus::PendingApproval);
    let mut known = store.invocations(&query).await?.found;
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
        let closed = store.invocations(&InvocationQuery::of(key).in_messages(asking)).await?.found;
        known.extend(closed.into_iter().filter(|(_, call)| !call.status.is_open()));
    }
    // What came out of one may wait in the outbox.
    let message = |sequence| history.message(sequence).cloned();
    let unsaved = store.handle().unsaved(key);
    let unsaved = unsaved.iter().flat_map(|write| write.tools());
    let unsaved = unsaved.filter(|row| row.status == ToolStatus::PendingApproval);
    let known = known.into_iter().map(|(_, call)| call);
    Ok(known.chain(unsaved.filter_map(|row| row.resolve(message).ok())).collect())
}
