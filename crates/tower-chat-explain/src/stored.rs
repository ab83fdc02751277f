//! Explains a conversation in a store.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Message, Messages,
    store::{History, HistoryStore, StoreError},
};
use tower_chat_layers::{
    replay::{DanglingCalls, FinishTimes, ReplayContext, ReplayPolicy},
    with_recorded_results,
};

use crate::{Explained, explain_folded, folded::Folded};

/// Returns for each visible message of a stored conversation its number, and how the model would receive
/// the message, if the next request added only text.
///
/// Reads the same data as a run: results that only the record of tool calls contains, and the finish times
/// of tools, if the policy needs them and the context has none.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::SystemTime;
/// use tower_chat::{*, explain::explain_stored, replay::{ReplayContext, ReplayPolicy}};
/// let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "support"));
/// let context = ReplayContext::at(SystemTime::now());
/// for (number, explained) in explain_stored(&store, &key, &ReplayPolicy::default(), &context).await? {
///     println!("message {number} is {}", explained.as_str());
/// }
/// # Ok::<(), tower_chat::store::StoreError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// Fails if the store, or one of the messages, cannot be read.
pub async fn explain_stored(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    policy: &ReplayPolicy,
    context: &ReplayContext<'_>,
) -> Result<Vec<(u64, Explained)>, StoreError> {
    let history = store.load(key).await?;
    let folded = completed(store, key, policy, &history).await?;
    let mut context = *context;
    let times;
    if policy.needs_finish_times() && context.finished.is_none() {
        times = FinishTimes::of_conversation(store, key, &folded.replay.view()).await;
        context.finished = Some(&times);
    }
    let explained = explain_folded(&history.messages, folded, policy, &context);
    Ok(history.numbered().map(|(number, _)| number).zip(explained).collect())
}

/// Folds a history, completed with results from the record of tool calls.
async fn completed(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    policy: &ReplayPolicy,
    history: &History,
) -> Result<Folded, StoreError> {
    let dangling_calls = policy.dangling_calls;
    let completed = with_recorded_results(store, key, history, dangling_calls).await?;
    Ok(match completed {
        Some(completed) => fold(history, &completed, dangling_calls),
        None => Folded::of(&history.messages, dangling_calls),
    })
}

/// Folds the messages of `completed`: messages of the history, and between them messages with results
/// from the record. Only messages of the history get marks.
fn fold(history: &History, completed: &Messages, dangling_calls: DanglingCalls) -> Folded {
    let mut folded = Folded::of(&Messages::new(), dangling_calls);
    let mut stored = history.messages.iter().enumerate().peekable();
    for message in completed.iter() {
        match stored.next_if(|(_, stored)| is_same(stored, message)) {
            Some((position, _)) => folded.push(message, position),
            None => folded.push_from_record(message),
        }
    }
    folded
}

/// Returns whether a completed message is this stored message. The completed message may be a copy with a
/// further mark in its metadata, and then has the same id.
fn is_same(stored: &Arc<Message>, message: &Arc<Message>) -> bool {
    Arc::ptr_eq(stored, message) || (stored.id.is_some() && stored.id == message.id)
}
