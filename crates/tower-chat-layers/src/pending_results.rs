//! Finds results that are in the record of tool calls (one row for each call) but not in the
//! history.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tower_chat_core::{
    CallPosition, ConversationKey, EndedBy, Message, MessageId, Messages, ToolInvocation,
    ToolResult, ToolStatus,
    pairing::AnswerKey,
    store::{CallSelection, History, HistoryStore, StoreError},
};

use crate::replay::{DanglingCalls, Replay, mark_ended, mark_ended_by};

/// Returns one message, for the input of the next run, with the results that are in the record of
/// tool calls but not in the history. Returns `None` if there are no such results.
///
/// If a tool ends a run, no service call sends the results of the last answer's calls. Only the
/// record then contains these results.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat::{tool::pending_results, *};
/// let key = ConversationKey::new("alice", "support");
/// assert_eq!(pending_results(&MemoryStore::new(), &key).await?, None);
/// # Ok::<(), tower_chat::store::StoreError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// Returns an error if the store cannot be read.
pub async fn pending_results(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
) -> Result<Option<Message>, StoreError> {
    let history = store.load(key).await?;
    let replay = Replay::of_history(&history, DanglingCalls::default());
    let found = recorded_calls(store, key, &history, &replay.dangling_positions()).await?;
    let mut found: Vec<_> = found.into_iter().filter(|(_, call)| call.result.is_some()).collect();
    found.sort_by_key(|((_, index), invocation)| (invocation.sequence, *index));
    let results: Vec<ToolResult> = found.iter().filter_map(|(_, call)| named(call)).collect();
    Ok((!results.is_empty()).then(|| Message::tool_results(results)))
}

/// Returns the messages of a history with results from the record of tool calls. The policy for
/// dangling calls, which are stored calls without a stored result, decides which results are added.
/// Each added result follows the answer that contains its call. Returns `None` if no message
/// changes and no result is added.
///
/// # Errors
///
/// Returns an error if the store cannot be read.
pub async fn with_recorded_results(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    policy: DanglingCalls,
) -> Result<Option<Messages>, StoreError> {
    if !policy.needs_record() {
        return Ok(None);
    }
    let replay = Replay::of_history(history, policy);
    completed_from_record(store, key, history, &replay, policy, &[]).await
}

/// Returns the messages of a history, completed from the record of tool calls. Returns `None` if
/// the record contains nothing to add.
/// - If one of the calls of an answer ended the run, or was returned to the caller, the answer is
///   marked as the end of its run.
/// - The recorded results of dangling calls, except the calls in `answered`, are added after the
///   answers that contain the calls. The results of marked answers are added only under
///   [`DanglingCalls::FromRecord`].
pub(crate) async fn completed_from_record(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    replay: &Replay,
    policy: DanglingCalls,
    answered: &[(MessageId, usize)],
) -> Result<Option<Messages>, StoreError> {
    let dangling = replay.dangling_positions();
    if dangling.is_empty() {
        return Ok(None);
    }
    // A call that is not dangling may have ended the run.
    let asking = messages_of_answers_with(history, &dangling);
    let mut found = recorded_rows(store, key, history, &asking).await?;
    let ended = answers_with(history, &found, |call| call.status == ToolStatus::Returned);
    let ended_by_tool = answers_with(history, &found, |call| {
        call.result.as_ref().is_some_and(|result| result.ends_run)
    });
    let dangling: HashSet<_> = dangling.into_iter().collect();
    found.retain(|position, call| dangling.contains(position) && call.result.is_some());
    if found.is_empty() && ended.is_empty() && ended_by_tool.is_empty() {
        return Ok(None);
    }
    for position in answered {
        found.remove(position);
    }
    let completes_all = policy == DanglingCalls::FromRecord;
    let mut completed = Messages::new();
    let all: Vec<&Arc<Message>> = history.messages.iter().collect();
    for answer in by_answer(&all) {
        let mut results: Vec<ToolResult> = Vec::new();
        for message in answer {
            let is_in =
                |answers: &HashSet<MessageId>| message.id.is_some_and(|id| answers.contains(&id));
            let is_ended = is_in(&ended) || is_in(&ended_by_tool);
            let mut marked = Arc::clone(message);
            if is_ended {
                mark_ended(&mut marked);
            }
            if is_in(&ended_by_tool) {
                mark_ended_by(&mut marked, EndedBy::Tool);
            }
            completed.push(marked);
            if !is_ended || completes_all {
                let positions = (0..).zip(message.asked_calls());
                let found =
                    positions.filter_map(|(index, _)| named(&found.remove(&(message.id?, index))?));
                results.extend(found);
            }
        }
        // A result between the messages of an answer would divide the answer.
        if !results.is_empty() {
            completed.push(Arc::new(Message::tool_results(results)));
        }
    }
    Ok(Some(completed))
}

/// Groups the messages of a history by answer. Each other message is a separate group.
fn by_answer<'m>(all: &'m [&'m Arc<Message>]) -> impl Iterator<Item = &'m [&'m Arc<Message>]> {
    all.chunk_by(|before, message| AnswerKey::is_shared(before, message))
}

/// Returns the ids of the messages of all answers with a recorded call that matches.
fn answers_with(
    history: &History,
    found: &HashMap<(MessageId, usize), ToolInvocation>,
    matches: impl Fn(&ToolInvocation) -> bool,
) -> HashSet<MessageId> {
    let matching = found.values().filter(|call| matches(call));
    let calls: Vec<_> = matching.map(|call| (call.message, call.sequence_index as usize)).collect();
    messages_of_answers_with(history, &calls)
}

/// Returns the ids of all messages of the answers that contain these calls.
fn messages_of_answers_with(history: &History, calls: &[(MessageId, usize)]) -> HashSet<MessageId> {
    let asking: HashSet<MessageId> = calls.iter().map(|(message, _)| *message).collect();
    if asking.is_empty() {
        return asking;
    }
    let all: Vec<&Arc<Message>> = history.messages.iter().collect();
    let is_asking = |message: &&Arc<Message>| message.id.is_some_and(|id| asking.contains(&id));
    let answers = by_answer(&all).filter(|answer| answer.iter().any(is_asking));
    answers.flatten().filter_map(|message| message.id).collect()
}

/// Returns the recorded results of these calls, in order. Returns `None` unless one of the calls
/// ended the run, or was returned to the caller.
pub(crate) async fn results_of_ended_run(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    calls: &[(MessageId, usize)],
) -> Result<Option<Vec<ToolResult>>, StoreError> {
    if calls.is_empty() {
        return Ok(None);
    }
    let found = recorded_calls(store, key, history, calls).await?;
    let is_returned = found.values().any(|call| call.status == ToolStatus::Returned);
    let results: Vec<_> =
        calls.iter().filter_map(|call| named_as_stored(found.get(call)?)).collect();
    let is_ended = is_returned || results.iter().any(|result| result.ends_run);
    Ok(is_ended.then_some(results))
}

pub(crate) async fn recorded_calls(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    calls: &[(MessageId, usize)],
) -> Result<HashMap<(MessageId, usize), ToolInvocation>, StoreError> {
    let asking = calls.iter().map(|(message, _)| *message).collect();
    let mut found = recorded_rows(store, key, history, &asking).await?;
    let calls: HashSet<_> = calls.iter().collect();
    found.retain(|position, _| calls.contains(position));
    Ok(found)
}

/// Returns the rows of all calls in these messages, by the position of the call. Includes the rows
/// in the outbox (the writes that failed and are submitted again).
async fn recorded_rows(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    history: &History,
    asking: &HashSet<MessageId>,
) -> Result<HashMap<(MessageId, usize), ToolInvocation>, StoreError> {
    let is_asked = |message: &Arc<Message>| message.id.is_some_and(|id| asking.contains(&id));
    let sequences = history.numbered().filter(|(_, message)| is_asked(message));
    let which = CallSelection::in_messages(sequences.map(|(sequence, _)| sequence));
    let invocations = store.calls(key, &which).await?;
    for unreadable in &invocations.unreadable {
        tracing::warn!("{unreadable}");
    }
    let stored = invocations.found.into_iter().map(|(_, call)| call);
    let message = |sequence| history.message(sequence).cloned();
    let unsaved = store.handle().unsaved(key);
    let unsaved = unsaved.iter().flat_map(|write| write.tools());
    let unsaved = unsaved.filter_map(|row| row.resolve(message).ok());
    Ok(stored
        .chain(unsaved)
        .map(|call| ((call.message, call.sequence_index as usize), call))
        .collect())
}

/// Returns the recorded result with the position of its call, because a later run may contain an
/// unanswered call with the same id.
fn named(invocation: &ToolInvocation) -> Option<ToolResult> {
    let mut result = named_as_stored(invocation)?;
    let (message, index) = (invocation.message, invocation.sequence_index);
    result.call = Some(CallPosition { message, index });
    Some(result)
}

fn named_as_stored(invocation: &ToolInvocation) -> Option<ToolResult> {
    let mut result = invocation.result.clone()?;
    result.call_id = Some(invocation.call_id.clone());
    Some(result)
}
