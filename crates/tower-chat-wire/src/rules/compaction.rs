//! Omits the messages that the service has summarized.
//!
//! The Responses API and Anthropic can compact a long conversation. The answer then contains an
//! item with a summary of all messages before the item. Only the service that created the item, its
//! issuer, can read the summary.
//!
//! Sources: <https://developers.openai.com/api/docs/guides/compaction>,
//! <https://platform.claude.com/docs/en/build-with-claude/compaction>.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{Change, ChangeKind, Message, Messages, Native, Part, Role};

use super::{natives::wire_name, service_rules::ServiceRules};
use crate::body::BodyWire;

/// The messages that are sent instead of a conversation with a summary.
pub(super) struct Compacted {
    pub(super) messages: Messages,
    /// Whether the first message after the instructions contains a summary.
    pub(super) begins_with_summary: bool,
    pub(super) changes: Vec<Change>,
}

/// The position of a summary: the index of its message, and the index of its part in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    message: usize,
    part: usize,
}

/// Omits the messages before the newest usable summary, except instructions. Returns `None` if the
/// messages contain no summary by this service.
///
/// Also returns `None` if the last message contains a summary: the service then continues a paused
/// answer, and its documentation requires that the request contains all messages.
///
/// A summary is not usable if a later result answers a call before the summary, because the service
/// would receive the result without its call. Such a summary is omitted, and the messages before it
/// are sent.
pub(super) fn compact(messages: &Messages, rules: &ServiceRules) -> Option<Compacted> {
    let summaries = summaries(messages, rules);
    if summaries.last()?.message + 1 == messages.len() {
        return None;
    }
    let is_usable = |summary: &&Position| !is_earlier_call_answered(messages, **summary);
    let used = summaries.iter().rev().find(is_usable);
    let first = used.map_or(0, |summary| summary.message);
    let is_instruction =
        |message: &&Arc<Message>| matches!(message.role, Role::System | Role::Developer);
    let mut kept: Vec<Arc<Message>> =
        messages.iter().take(first).filter(is_instruction).cloned().collect();
    let mut changes = Vec::new();
    match first - kept.len() {
        0 => {}
        count => {
            changes.push(Change::new(ChangeKind::Message, omission_text(count, &rules.issuer)))
        }
    }
    for (message, index) in messages.iter_from(first).zip(first..) {
        let is_unusable = |part| {
            let position = Position { message: index, part };
            used != Some(&position) && summaries.contains(&position)
        };
        let parts = message.parts.iter().enumerate();
        let parts: Vec<Part> =
            parts.filter(|(part, _)| !is_unusable(*part)).map(|(_, part)| part.clone()).collect();
        if parts.len() == message.parts.len() {
            kept.push(Arc::clone(message));
            continue;
        }
        let what = format!(
            "a summary by {} is not sent, because a result of an earlier call follows it",
            rules.issuer
        );
        changes.push(Change::new(ChangeKind::Native, what).of_message(message.id));
        if !parts.is_empty() {
            kept.push(Arc::new(message.with_parts(parts)));
        }
    }
    let begins_with_summary = used.is_some();
    Some(Compacted { messages: kept.into_iter().collect(), begins_with_summary, changes })
}

fn omission_text(count: usize, issuer: &str) -> String {
    match count {
        1 => format!("1 message is not sent, because {issuer} has summarized it"),
        _ => {
            format!("{count} messages are not sent, because {issuer} has summarized them")
        }
    }
}

/// Returns the positions of the summaries by this service, in ascending order.
fn summaries(messages: &Messages, rules: &ServiceRules) -> Vec<Position> {
    if !matches!(rules.wire, BodyWire::Anthropic | BodyWire::OpenAiResponses) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (message, index) in messages.iter().zip(0..) {
        for (part, part_index) in message.parts.iter().zip(0..) {
            let Part::Native(native) = part else { continue };
            if is_own_summary(native, rules) {
                found.push(Position { message: index, part: part_index });
            }
        }
    }
    found
}

/// Returns whether the item is a summary by this service. Returns `false` for an item without an
/// issuer, because another service may have created it.
fn is_own_summary(native: &Native, rules: &ServiceRules) -> bool {
    *native.wire == *wire_name(rules.wire)
        && native.issuer.as_ref().is_some_and(|issuer| *issuer == rules.issuer)
        && native.is_summary()
}

/// Returns whether a result after a summary answers a call before the summary.
fn is_earlier_call_answered(messages: &Messages, summary: Position) -> bool {
    let mut calls = HashSet::new();
    let first = messages.iter_from(summary.message).take(1);
    let first = first.flat_map(|message| message.parts.iter().skip(summary.part));
    let later = messages.iter_from(summary.message + 1).flat_map(|message| &message.parts);
    for part in first.chain(later) {
        match part {
            Part::ToolCall(call) => drop(calls.insert(call.id.as_deref())),
            Part::ToolResult(result) if !calls.contains(&result.call_id.as_deref()) => return true,
            _ => {}
        }
    }
    false
}
