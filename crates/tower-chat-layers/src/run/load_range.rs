//! Loads only the messages of a conversation that a run needs.
//!
//! If a summary or a window leaves out the beginning of a conversation, the model receives the same
//! messages whether or not the beginning is loaded. After a run has loaded a history, it determines
//! from which message on the next run needs the history, and stores this position with its first
//! write ([`next_range`]). The next run loads the messages from there, if the position still applies
//! ([`range_of`]). Otherwise it loads all messages.

use std::{collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};
use tower_chat_core::{
    Message, MessageId, Part, Role, RunId, ToolResult,
    store::{Head, History, author::LoadFrom},
};

use super::{conversation::LoadedConversation, stored_messages::position_in};
use crate::{
    PersistencePolicy,
    replay::{
        Citations, DanglingCalls, Replay, ReplayPolicy, ReplaySummary, ToolHistory,
        effective_call_ids, is_answer,
    },
    transcript::is_system,
};

/// The state of the conversation and the policy to which a position applies.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct AppliesTo {
    pruned: u64,
    rewrites: u64,
    /// The largest id of the runs whose messages are not loaded.
    last_run: RunId,
    /// The number after the highest source number in the messages that are not loaded.
    next_source: u64,
    /// The window that omits the messages. `None` if the summary in force covers them.
    window: Option<WindowInForce>,
}

/// A window, and the state on which its beginning depends in addition to the messages.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct WindowInForce {
    turns: usize,
    low_water: usize,
    omits_tools: bool,
    summary: Option<u64>,
}

impl AppliesTo {
    fn of(from: &LoadFrom) -> Option<Self> {
        serde_json::from_str(&from.applies_to).ok()
    }

    fn is_unchanged(&self, head: &Head) -> bool {
        self.pruned == head.pruned && self.rewrites == head.rewrites
    }
}

impl WindowInForce {
    /// Returns the window of a policy, if its beginning changes only with new messages. The unit of
    /// the window must therefore be turns, and no step before the window may remove calls by their
    /// age or by the registered tools.
    fn of(policy: &PersistencePolicy, summary: Option<u64>) -> Option<Self> {
        let replay = &policy.replay;
        let (turns, low_water) = replay.window.as_ref()?.as_turns()?;
        let is_fixed = replay.freshness.is_none() && replay.outdated_calls.is_off();
        // A summary covers all messages after those of the summary in force, so a run that may make
        // one needs them.
        let needs_only_window = policy.summarize.is_none();
        let omits_tools = replay.tool_history == ToolHistory::Omit;
        (is_fixed && needs_only_window).then_some(Self { turns, low_water, omits_tools, summary })
    }
}

/// Returns whether a range of a history can be replayed alone. It cannot if source numbers are read
/// from the whole history, or if `Fail` reports dangling calls of any turn.
fn has_ranges(policy: &ReplayPolicy) -> bool {
    policy.citations.is_none() && policy.dangling_calls != DanglingCalls::Fail
}

/// Returns whether messages contain results or responses to approval requests, whose calls may be
/// before a range.
pub(super) fn answers_calls(messages: &[Arc<Message>]) -> bool {
    let answers = |part: &Part| matches!(part, Part::ToolResult(_) | Part::ApprovalResponse(_));
    messages.iter().any(|message| message.parts.iter().any(answers))
}

/// Returns whether messages of a run answer calls of earlier runs. `added` are the messages that
/// the run has added before. The results of a call without an id have its generated id.
fn answers_earlier_calls(messages: &[Arc<Message>], run: RunId, added: &[Arc<Message>]) -> bool {
    let mut own = OwnCallIds { known: HashSet::new(), unread: added };
    for message in messages {
        let approves = |part: &Part| matches!(part, Part::ApprovalResponse(_));
        let mut is_own = |result: &ToolResult| match &result.call {
            Some(call) => call.message.run == run,
            None => own.contains(result.call_id.as_deref()),
        };
        if message.parts.iter().any(approves) || !message.results().all(&mut is_own) {
            return true;
        }
        own.known.extend(effective_call_ids(message));
    }
    false
}

/// The ids of the calls of a run. Most results answer the last message with calls, so earlier
/// messages are read only if an id is not found.
struct OwnCallIds<'a> {
    known: HashSet<String>,
    /// The messages of the run whose calls are not in `known` yet.
    unread: &'a [Arc<Message>],
}

impl OwnCallIds<'_> {
    /// Returns whether a call has this id. Without an id, returns whether there is any call.
    fn contains(&mut self, id: Option<&str>) -> bool {
        let id = id.filter(|id| !id.is_empty());
        loop {
            if id.map_or(!self.known.is_empty(), |id| self.known.contains(id)) {
                return true;
            }
            let Some((last, unread)) = self.unread.split_last() else { return false };
            self.known.extend(effective_call_ids(last));
            self.unread = unread;
        }
    }
}

/// Returns the range of a conversation with this head that a new run needs. `None` if the run needs
/// all messages.
pub(super) fn range_of<'a>(
    policy: &PersistencePolicy,
    head: &'a Head,
    run: RunId,
) -> Option<&'a Arc<LoadFrom>> {
    let from = head.load_from.as_ref().filter(|_| has_ranges(&policy.replay))?;
    let applies_to = AppliesTo::of(from)?;
    let is_left_out = match &applies_to.window {
        Some(window) => {
            let summary = head.summary.map(|summary| summary.id);
            WindowInForce::of(policy, summary).as_ref() == Some(window)
        }
        None => head.summary.is_some_and(|summary| summary.covers_to >= from.after),
    };
    (is_left_out && applies_to.is_unchanged(head) && run > applies_to.last_run).then_some(from)
}

/// Returns the range that the next run needs. `None` if the range in the head need not change.
/// `replay` is the replay of the history after the steps of the policy.
pub(super) fn next_range(
    policy: &PersistencePolicy,
    history: &History,
    replay: &Replay,
    summary: Option<&ReplaySummary>,
) -> Option<Arc<LoadFrom>> {
    let stored = history.head.load_from.as_deref();
    if let Some(range) = new_range(policy, history, replay, summary) {
        return (stored != Some(&range)).then(|| Arc::new(range));
    }
    // The stored range remains, unless another program has added results of calls before it.
    let next = history.message(stored?.after.checked_add(1)?)?.id?;
    let is_outdated = history.is_whole() && stored?.after > 0 && !replay.can_begin_with(next.run);
    is_outdated.then(all_messages)
}

/// Determines the range from the loaded history. `None` if no message can be omitted.
fn new_range(
    policy: &PersistencePolicy,
    history: &History,
    replay: &Replay,
    summary: Option<&ReplaySummary>,
) -> Option<LoadFrom> {
    if !has_ranges(&policy.replay) || !history.runs_ascend() {
        return None;
    }
    let covers_to = summary.map(|summary| summary.summary().covers_to);
    let window = WindowInForce::of(policy, summary.map(|summary| summary.summary().id));
    let leading = leading_messages(history, replay)?;
    let first = window.as_ref().and_then(|_| {
        let sent = replay.closed().iter();
        let mut positions = sent.filter_map(|message| sequence_of(history, message.id?));
        positions.find(|position| *position > leading)
    });
    let (after, window) = match (first, covers_to) {
        (Some(first), covers_to) if Some(first - 1) > covers_to => (first - 1, window),
        (_, covers_to) => (covers_to?, None),
    };
    let (before, next) = (history.message(after)?, history.message(after + 1)?);
    let (last_run, run) = (before.id?.run, next.id?.run);
    // A system message at the beginning of a range would be treated as one at the beginning of the
    // conversation.
    let begins_run = last_run < run && next.role == Role::User;
    let ends_turn = is_answer(before) && !before.parts.is_empty();
    if !begins_run || !ends_turn || !replay.can_begin_with(run) {
        return None;
    }
    let next_source = next_source(history, after)?;
    let Head { pruned, rewrites, .. } = history.head;
    let applies_to = AppliesTo { pruned, rewrites, last_run, next_source, window };
    let applies_to = serde_json::to_string(&applies_to).ok()?;
    (leading <= after).then_some(LoadFrom { leading, after, applies_to })
}

/// Returns the number after the highest source number in the messages up to `after`. `None` if
/// earlier messages are neither loaded nor known.
fn next_source(history: &History, after: u64) -> Option<u64> {
    let stored = history.head.load_from.as_deref().filter(|from| from.after <= after);
    let known = stored.and_then(|from| Some((from.after, AppliesTo::of(from)?)));
    let known = known.filter(|(_, applies_to)| applies_to.is_unchanged(&history.head));
    let (from, known) = match known {
        Some((from, applies_to)) => (from.max(history.skipped()), applies_to.next_source),
        None if history.is_whole() => (history.skipped(), 0),
        None => return None,
    };
    let index = |sequence: u64| usize::try_from(sequence.checked_sub(history.skipped())?).ok();
    let messages = history.messages.take(index(after)?).skip(index(from)?);
    Some(known.max(Citations::default().next_number(&messages)))
}

/// Returns the number after the highest source number in the messages that were not loaded.
pub(super) fn next_source_after_skipped(history: &History) -> u64 {
    let stored = history.head.load_from.as_deref().filter(|_| !history.is_whole());
    stored.and_then(AppliesTo::of).map_or(0, |applies_to| applies_to.next_source)
}

fn all_messages() -> Arc<LoadFrom> {
    Arc::new(LoadFrom { leading: 0, after: 0, applies_to: String::new() })
}

impl LoadedConversation {
    /// Returns the range that a write stores for the next run. The next run needs all messages if
    /// messages of this write answer calls of earlier runs, or if a tool loop of another crate
    /// sends the messages of the conversation itself.
    pub(super) fn range_with(&mut self, messages: &[Arc<Message>]) -> Option<Arc<LoadFrom>> {
        let mut range = self.next_range.take();
        if self.needs_all_later
            || answers_earlier_calls(messages, self.added.run, self.added.as_slice())
        {
            range = self.has_range.then(all_messages);
        }
        if let Some(range) = &range {
            self.has_range = range.after > 0;
        }
        range
    }
}

/// Returns the sequence number of the last system or developer message at the beginning of the
/// conversation, which neither a summary nor a window omits, or 0 if there is none.
///
/// Returns `None` if the replay begins with other such messages, because it omits messages between
/// them. Also returns `None` if these messages contain media, which later messages affect:
/// `OldMedia` counts them, and a service may refuse them.
fn leading_messages(history: &History, replay: &Replay) -> Option<u64> {
    let is_leading = |message: &&Arc<Message>| is_system(message);
    let leading = match history.is_whole() {
        true => history.messages.take(history.messages.iter().take_while(is_leading).count()),
        false => history.leading.clone(),
    };
    let count = leading.len();
    let has_media =
        |message: &Arc<Message>| message.parts.iter().any(|part| matches!(part, Part::Media(_)));
    let of_replay = replay.closed().iter().take_while(is_leading).count();
    if of_replay != count || leading.iter().any(has_media) {
        return None;
    }
    Some(if count == 0 { 0 } else { history.head.pruned + count as u64 })
}

fn sequence_of(history: &History, id: MessageId) -> Option<u64> {
    Some(history.skipped() + position_in(history, id)? as u64 + 1)
}

#[cfg(test)]
mod tests;
