//! Loads only the messages of a conversation that a run needs.
//!
//! If a summary or a window leaves out the beginning of a conversation, the model receives the same
//! messages whether or not the beginning is loaded. After a run has loaded a history, it determines
//! from which message on the next run needs the history, and stores this position with its first
//! write ([`next_range`]). The next run loads the messages from there, if the position still applies
//! ([`range_of`]). Otherwise it loads all messages.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_chat_core::{
    Message, MessageId, Part, Role, RunId,
    store::{Head, History, author::LoadFrom},
};

use crate::{
    PersistencePolicy,
    replay::{DanglingCalls, Replay, ReplayPolicy, ReplaySummary, ToolHistory, is_answer},
};

/// The state of the conversation and the policy to which a position applies.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct AppliesTo {
    pruned: u64,
    rewrites: u64,
    /// The largest id of the runs whose messages are not loaded.
    last_run: RunId,
    /// The window that leaves the messages out. `None` if the summary in force covers them.
    window: Option<WindowInForce>,
}

/// A window, and what its beginning depends on besides the messages.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct WindowInForce {
    turns: usize,
    low_water: usize,
    omits_tools: bool,
    /// The id of the summary in force.
    summary: Option<u64>,
}

impl WindowInForce {
    /// Returns the window of a policy. `None` if there is no window, or if its beginning can change
    /// although no message is added: if the window has another unit than turns, or if a step before
    /// the window removes calls by their age or by the registered tools.
    fn of(policy: &PersistencePolicy, summary: Option<u64>) -> Option<Self> {
        let replay = &policy.replay;
        let (turns, low_water) = replay.window.as_ref()?.as_turns()?;
        let is_fixed = replay.freshness.is_none() && replay.outdated_calls.is_off();
        // A summary covers messages after those of the summary in force, so a run that may make a
        // summary needs all of them.
        let needs_only_window = policy.summarize.is_none();
        let omits_tools = replay.tool_history == ToolHistory::Omit;
        (is_fixed && needs_only_window).then_some(Self { turns, low_water, omits_tools, summary })
    }
}

/// Returns whether the replay of the end of a history can be equal to the end of the whole replay.
/// Sources of citations are numbered from the beginning, and `Fail` reports a call of any turn.
fn has_ranges(policy: &ReplayPolicy) -> bool {
    policy.citations.is_none() && policy.dangling_calls != DanglingCalls::Fail
}

/// Returns whether a request contains results of calls or responses to approval requests. The calls
/// may be in messages that a range does not contain.
pub(super) fn answers_calls(own: &[Arc<Message>]) -> bool {
    let answers = |part: &Part| matches!(part, Part::ToolResult(_) | Part::ApprovalResponse(_));
    own.iter().any(|message| message.parts.iter().any(answers))
}

/// Returns the range of a conversation with this head that a new run needs. `None` if the run needs
/// all messages.
pub(super) fn range_of<'a>(
    policy: &PersistencePolicy,
    head: &'a Head,
    run: RunId,
) -> Option<&'a Arc<LoadFrom>> {
    let from = head.load_from.as_ref().filter(|_| has_ranges(&policy.replay))?;
    let applies_to: AppliesTo = serde_json::from_str(&from.applies_to).ok()?;
    let is_left_out = match &applies_to.window {
        Some(window) => {
            let summary = head.summary.map(|summary| summary.id);
            WindowInForce::of(policy, summary).as_ref() == Some(window)
        }
        None => head.summary.is_some_and(|summary| summary.covers_to >= from.after),
    };
    let is_unchanged = applies_to.pruned == head.pruned && applies_to.rewrites == head.rewrites;
    (is_left_out && is_unchanged && run > applies_to.last_run).then_some(from)
}

/// Returns the range that the next run needs. `None` if the range in the head of the history need
/// not change. `replay` is the replay of the history after the steps of the policy.
pub(super) fn next_range(
    policy: &PersistencePolicy,
    history: &History,
    replay: &Replay,
    summary: Option<&ReplaySummary>,
) -> Option<Arc<LoadFrom>> {
    if !has_ranges(&policy.replay) || !history.runs_ascend() {
        return None;
    }
    let covers_to = summary.map(|summary| summary.summary().covers_to);
    let window = WindowInForce::of(policy, summary.map(|summary| summary.summary().id));
    let leading = leading_messages(history, replay)?;
    let first = window.as_ref().and_then(|_| {
        let sent = replay.closed().iter();
        let mut positions = sent.filter_map(|message| position(history, message.id?));
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
    let Head { pruned, rewrites, .. } = history.head;
    let applies_to = AppliesTo { pruned, rewrites, last_run, window };
    let applies_to = serde_json::to_string(&applies_to).ok()?;
    let from = LoadFrom { leading, after, applies_to };
    let is_new = history.head.load_from.as_deref() != Some(&from);
    (is_new && leading <= after).then(|| Arc::new(from))
}

/// Returns a range that contains all messages, if the head has another one. A run stores it if its
/// messages may answer calls that the range in the head does not contain.
pub(super) fn all_messages(head: &Head) -> Option<Arc<LoadFrom>> {
    head.load_from.as_ref().filter(|from| from.after > 0)?;
    Some(Arc::new(LoadFrom { leading: 0, after: 0, applies_to: String::new() }))
}

/// Returns the sequence number of the last system or developer message at the beginning of the
/// conversation, which neither a summary nor a window leaves out. Returns 0 if there is none. Returns
/// `None` if the replay begins with other such messages, because it omits messages between them.
fn leading_messages(history: &History, replay: &Replay) -> Option<u64> {
    let is_leading =
        |message: &&Arc<Message>| matches!(message.role, Role::System | Role::Developer);
    let count = match history.is_whole() {
        true => history.messages.iter().take_while(is_leading).count(),
        false => history.leading.len(),
    };
    if replay.closed().iter().take_while(is_leading).count() != count {
        return None;
    }
    Some(if count == 0 { 0 } else { history.head.pruned + count as u64 })
}

/// Returns the sequence number of a message; `None` if the history does not contain it.
fn position(history: &History, id: MessageId) -> Option<u64> {
    let end = history.end_of_run(id.run)?;
    let id_at = |position: usize| history.messages.get(position)?.id;
    let of_run = |position: &usize| id_at(*position).is_some_and(|found| found.run == id.run);
    let mut positions = (0..end).rev().take_while(of_run);
    let found = positions.find(|position| id_at(*position) == Some(id))?;
    Some(history.skipped() + found as u64 + 1)
}

#[cfg(test)]
mod tests;
