//! Explains a conversation in a store.
//!
//! The *visible* messages are all messages except those of a run that is still open. A *mark* on a
//! message contains the stored position of the message.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Message, Messages,
    store::{History, HistoryStore, StoreError},
};
use tower_chat_layers::{
    replay::{DanglingCalls, FinishTimes, ReplayContext, ReplayPolicy, ReplaySummary},
    with_recorded_results,
};

use crate::{Explained, explain_folded, folded::Folded};

/// Returns the sequence number and the explanation of each visible message of a stored
/// conversation. The explanation describes how the model would receive the message if the next
/// request added only text.
///
/// Like a run, the function reads the results that the policy needs from the record of tool calls,
/// which has a row for each call. It also reads the summary that replaces the oldest messages, and
/// the times at which the tools finished, unless the context already contains them.
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
/// Returns an error if the store or one of the messages cannot be read.
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
    let summary;
    if context.summary.is_none() {
        summary = ReplaySummary::in_force(store, key, &history).await?;
        context.summary = summary.as_ref();
    }
    let explained = explain_folded(&history.messages, folded, policy, &context);
    Ok(history.numbered().map(|(number, _)| number).zip(explained).collect())
}

/// Adds the results that the policy requires from the record of tool calls to a history, and folds
/// the history.
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

/// Folds the messages of `completed`, which are the messages of the history and, between them,
/// messages with results from the record. Only the messages of the history get marks.
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

/// Returns whether a message of the completed history is the given stored message, or a copy of it
/// with other metadata.
fn is_same(stored: &Arc<Message>, message: &Arc<Message>) -> bool {
    Arc::ptr_eq(stored, message) || (stored.id.is_some() && stored.id == message.id)
}
