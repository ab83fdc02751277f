//! Loads a conversation for a run: reads the stored history, applies the writes in the outbox, and
//! builds the replay of the messages. The outbox of a store contains writes that have failed and
//! are submitted again with the next write.

use std::sync::Arc;

use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey, Message, Messages, RunId,
    store::{
        Head, History, HistoryStore, StoreError,
        author::{LoadFrom, Write},
    },
};

use super::{
    Settings,
    complete::is_incomplete_response,
    load_range::{next_range, range_of},
    model_request::own_messages,
    stored_messages::messages_of_run,
};
use crate::{
    PersistenceError,
    pending_results::completed_from_record,
    replay::{Replay, ReplaySummary},
    summarize::Summarizable,
};

/// The history of a run, including the writes in the outbox.
pub(super) struct LoadedReplay {
    pub(super) history: History,
    pub(super) replay: Replay,
    pub(super) summary: Option<u64>,
    /// The history for a summary, if the policy allows the run to make one.
    pub(super) summarizable: Option<Box<Summarizable>>,
    pub(super) next_range: Option<Arc<LoadFrom>>,
}

/// Returns the history (or only the messages in `range`) after the writes in the outbox, and its
/// replay under the replay policy.
pub(super) async fn load_history(
    settings: &Settings,
    conversation: &Conversation,
    request: &ChatRequest,
    range: Option<&Arc<LoadFrom>>,
) -> Result<LoadedReplay, StoreError> {
    let Conversation { key, run } = conversation;
    let stored = match range {
        Some(from) => settings.store.load_from(key, from).await?,
        None => settings.store.load(key).await?,
    };
    let unsaved = unsaved_after(&settings.store, key, &stored.head);
    let own = own_messages(request);
    let (history, mut replay) = replay_of(settings, key, *run, stored, &unsaved, &own).await;
    // Messages that are missing in the history count as covered by the summary, so the history must
    // contain the unsaved messages.
    let summary = ReplaySummary::in_force(&*settings.store, key, &history).await?;
    let summary_id = summary.as_ref().map(|summary| summary.summary().id);
    if !history.is_whole() {
        // Another process may have changed the conversation since its head was read.
        let is_valid = range_of(&settings.policy, &history.head, *run) == range
            && summary_id == history.head.summary.map(|summary| summary.id)
            && !replay.has_results_without_calls();
        if !is_valid {
            return Box::pin(load_history(settings, conversation, request, None)).await;
        }
    }
    let before = settings.policy.summarize.as_ref().map(|_| replay.clone());
    let sources = settings.replay_sources(conversation, request);
    sources.edit(&mut replay, summary.as_ref()).await;
    let next_range = next_range(&settings.policy, &history, &replay, summary.as_ref());
    Ok(LoadedReplay {
        next_range,
        summary: summary_id,
        summarizable: before.map(|before| {
            Box::new(Summarizable {
                history: history.clone(),
                replay: before,
                summary,
                run: Some(*run),
            })
        }),
        history,
        replay,
    })
}

/// Returns the writes in the outbox that follow the stored messages.
fn unsaved_after(store: &Arc<dyn HistoryStore>, key: &ConversationKey, head: &Head) -> Vec<Write> {
    let mut revision = head.revision;
    let mut unsaved = store.handle().unsaved(key);
    unsaved.retain(|write| {
        let follows = write.expected() == revision;
        if follows {
            revision = write.result();
        }
        follows
    });
    unsaved
}

/// Applies the writes in the outbox to a history, and returns it with its replay. Adds recorded
/// results of dangling calls if the policy requires it, except results in `own` (the request's own
/// messages).
async fn replay_of(
    settings: &Settings,
    key: &ConversationKey,
    run: RunId,
    mut history: History,
    unsaved: &[Write],
    own: &[Arc<Message>],
) -> (History, Replay) {
    let dangling_calls = settings.policy.replay.dangling_calls;
    let mut replay = Replay::of_long_history(&history, dangling_calls).await;
    for write in unsaved {
        write.messages().iter().for_each(|message| replay.push(message));
        history.apply(write);
    }
    let has_incomplete_responses = has_incomplete_responses(&history, run);
    if has_incomplete_responses {
        replay = Replay::new(dangling_calls);
        replay.push_from(&without_incomplete_responses(&history.messages, run), 0);
    }
    if dangling_calls.needs_record() && !replay.dangling_positions().is_empty() {
        let store = &settings.store;
        let asked = match own.iter().any(|message| message.results().next().is_some()) {
            true => replay.clone().push_answering(own),
            false => Vec::new(),
        };
        let asked = asked.into_iter().flatten().flatten();
        let answered: Vec<_> = asked.map(|asked| asked.call_position).collect();
        let completed =
            completed_from_record(store, key, &history, &replay, dangling_calls, &answered);
        match completed.await {
            Ok(Some(completed)) => {
                let completed = if has_incomplete_responses {
                    without_incomplete_responses(&completed, run)
                } else {
                    completed
                };
                replay = Replay::new(dangling_calls);
                replay.push_from(&completed, 0);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(
                conversation = %key,
                error = &error as &dyn std::error::Error,
                "the record of tool calls could not be read; dangling calls without a mark count \
                 as interrupted"
            ),
        }
    }
    if !history.leading.is_empty() {
        let mut leading = Replay::new(dangling_calls);
        leading.push_from(&history.leading, 0);
        replay = replay.after_prefix(&leading.view());
    }
    (history, replay)
}

/// Returns whether the history contains incomplete responses of `run`, which the request continues.
pub(super) fn has_incomplete_responses(history: &History, run: RunId) -> bool {
    messages_of_run(history, run).any(|message| is_incomplete_response(message, run))
}

/// Returns the messages without the incomplete responses of `run`, which the request continues.
fn without_incomplete_responses(messages: &Messages, run: RunId) -> Messages {
    messages.iter().filter(|message| !is_incomplete_response(message, run)).cloned().collect()
}

/// Returns the conversation's head after all writes in the outbox.
pub(crate) async fn head_of(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Head, PersistenceError> {
    let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
    let head = settings.store.head(key).await.map_err(not_loaded)?;
    let unsaved = unsaved_after(&settings.store, key, &head);
    let mut history = History::new(head, Messages::new());
    unsaved.iter().for_each(|write| history.apply(write));
    Ok(history.head)
}
