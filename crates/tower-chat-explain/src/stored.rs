//! The explanation of a conversation in a store.

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

/// What the model would be sent of each message of a stored conversation that readers see, if the
/// next request added words alone: the numbers of the messages, and what becomes of them.
///
/// The store is asked what a run asks it: for the results of calls that only the record of tool calls
/// has, and for the times at which tools had finished, if the context has none.
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
/// If the store cannot be read, or one of the messages cannot.
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

/// The fold over a history and what the record knows of its dangling calls.
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

/// The fold over messages that are those of a history, in their order, with others between them.
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

/// Whether a message is the stored one, which a mark in its metadata may have been added to.
fn is_same(stored: &Arc<Message>, message: &Arc<Message>) -> bool {
    Arc::ptr_eq(stored, message) || (stored.id.is_some() && stored.id == message.id)
}
