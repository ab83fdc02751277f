//! Results that were left out of a history, for the run that goes on from there.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    CallPosition, ConversationKey, Message, MessageId, Messages, ToolInvocation, ToolResult,
    store::{History, HistoryStore, InvocationQuery, StoreError},
};

use crate::replay::{DanglingCalls, Replay};

/// The results of stored calls that the record holds and the history does not, as one message to
/// give to the next run as its input; `None` if there are none.
///
/// A run that ends with tool results which no service call has seen, because a tool ended it,
/// leaves them in the record alone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat::{core::*, pending_results};
/// let key = ConversationKey::new("alice", "support");
/// assert_eq!(pending_results(&MemoryStore::new(), &key).await?, None);
/// # Ok::<(), tower_chat::core::store::StoreError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// If the store cannot be read.
pub async fn pending_results(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
) -> Result<Option<Message>, StoreError> {
    let history = store.load(key).await?;
    let replay = Replay::of_history(&history, DanglingCalls::Drop);
    let found = recorded_results(store, key, &history, &replay).await?;
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|((_, index), invocation)| (invocation.sequence, *index));
    let results: Vec<ToolResult> = found.into_iter().map(|(_, result)| named(result)).collect();
    Ok((!results.is_empty()).then(|| Message::tool_results(results)))
}

/// The history with the recorded results of dangling calls put right after their calls.
pub(crate) async fn completed_from_record(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    replay: &Replay,
) -> Result<Option<Messages>, StoreError> {
    let mut found = recorded_results(store, key, history, replay).await?;
    if found.is_empty() {
        return Ok(None);
    }
    let mut completed = Messages::new();
    for message in history.messages.iter() {
        completed.push(message.clone());
        let places = (0..).zip(message.asked_calls());
        let results: Vec<ToolResult> = places
            .filter_map(|(index, _)| found.remove(&(message.id?, index)))
            .map(named)
            .collect();
        if !results.is_empty() {
            completed.push(Arc::new(Message::tool_results(results)));
        }
    }
    Ok(Some(completed))
}

/// What the record knows of the calls that dangle in a replay, by their places.
async fn recorded_results(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    replay: &Replay,
) -> Result<HashMap<(MessageId, usize), ToolInvocation>, StoreError> {
    let dangling = replay.dangling_calls();
    let is_dangling = |message: &Arc<Message>| {
        message.id.is_some_and(|id| dangling.iter().any(|(message, _)| *message == id))
    };
    let sequences = history.numbered().filter(|(_, message)| is_dangling(message));
    let query = InvocationQuery::of(key).in_messages(sequences.map(|(sequence, _)| sequence));
    let invocations = store.invocations(&query).await?;
    for unreadable in &invocations.unreadable {
        tracing::warn!("{unreadable}");
    }
    let with_results = invocations.found.into_iter().filter(|(_, call)| call.result.is_some());
    Ok(with_results
        .map(|(_, call)| ((call.message, call.sequence_index as usize), call))
        .filter(|(place, _)| dangling.contains(place))
        .collect())
}

/// The result under the id by which the model knows the call, naming the call by position: a later
/// run may have left a call with the same id without a result.
fn named(invocation: ToolInvocation) -> ToolResult {
    let mut result = invocation.result.unwrap_or_else(|| ToolResult::new("", ""));
    result.call_id = Some(invocation.call_id);
    let (message, index) = (invocation.message, invocation.sequence_index);
    result.call = Some(CallPosition { message, index });
    result
}
