//! Finds the problems of a conversation.
//!
//! The *record of tool calls* is a part of a store: one row for each call, with its status, times
//! and result. The messages of an *open run* are *staged*: the store contains these messages, but
//! they are not part of the history yet. A *replay* converts stored messages to the messages of a
//! request to the model. To *prune* a conversation is to delete its oldest runs.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    Message, MessageId, Messages,
    store::{
        ConversationRows, SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};
use tower_chat_layers::{
    replay::{DanglingCalls, Replay},
    validate::validate_messages,
};

use crate::{Mismatch, error::chain, mismatches_of_readable};

/// A problem of one message, or of the row for a call of this message in the record of tool calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The number of the message in its conversation, from 1.
    pub message: u64,
    /// The description of the problem, for people.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(message: u64, what: impl Into<String>) -> Self {
        Self { message, what: what.into() }
    }
}

/// Returns all problems in the rows of a conversation, in the order of the messages. If a message
/// is unreadable, the function also reports the problems of the other messages.
pub fn problems(rows: &ConversationRows) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut messages: Vec<(u64, Option<&Arc<Message>>)> = Vec::new();
    let first = rows.head.pruned.saturating_add(1);
    let mut expected = first;
    for (sequence, message) in &rows.messages {
        if *sequence > expected {
            found.push(missing(expected, sequence.saturating_sub(1)));
            messages.push((expected, None));
        } else if *sequence < expected {
            found.push(Problem::new(*sequence, format!("the first message is {first}")));
        }
        if let Err(error) = message {
            found.push(Problem::new(*sequence, format!("cannot be read: {}", chain(error))));
        }
        messages.push((*sequence, message.as_ref().ok()));
        expected = sequence.saturating_add(1);
    }
    if expected <= last_visible(rows) {
        found.push(missing(expected, last_visible(rows)));
        messages.push((expected, None));
    }
    for mismatch in mismatches_of_readable(messages) {
        match &mismatch {
            Mismatch::DanglingCall { call, .. } if is_in_record(rows, *call) => {}
            _ => found.push(Problem::new(mismatch.sequence(), mismatch.to_string())),
        }
    }
    found.extend(problems_of_records(rows));
    if let Some(messages) = all_messages(rows) {
        found.extend(problems_of_replay(first, &messages));
    }
    found.sort_by_key(|problem| problem.message);
    found
}

fn missing(first: u64, last: u64) -> Problem {
    match first == last {
        true => Problem::new(first, "is missing"),
        false => Problem::new(first, format!("is missing, as are all messages up to {last}")),
    }
}

/// Returns the number of the last message that readers can see. The staged messages of an open run
/// have greater numbers.
pub(crate) fn last_visible(rows: &ConversationRows) -> u64 {
    rows.head.open_run.as_ref().map_or(rows.head.revision.sequence, |open| open.visible)
}

/// Returns all messages that were not pruned. Returns `None` if one of them is missing or
/// unreadable.
pub(crate) fn all_messages(rows: &ConversationRows) -> Option<Messages> {
    let count = rows.messages.len() as u64;
    if rows.head.pruned.saturating_add(count) != last_visible(rows) {
        return None;
    }
    let numbered = (rows.head.pruned.saturating_add(1)..).zip(&rows.messages);
    let messages: Option<Vec<Arc<Message>>> = numbered
        .map(|(expected, (sequence, message))| {
            message.as_ref().ok().filter(|_| expected == *sequence).cloned()
        })
        .collect();
    messages.map(|messages| messages.into_iter().collect())
}

/// Returns the message with this number, if it is stored and can be read.
pub(crate) fn readable(rows: &ConversationRows, sequence: u64) -> Option<Arc<Message>> {
    let found = rows.messages.binary_search_by_key(&sequence, |(sequence, _)| *sequence).ok()?;
    rows.messages.get(found)?.1.as_ref().ok().cloned()
}

/// Returns whether the result of a call is stored in the record of tool calls instead of a message.
/// A run stores a result in the record until a request to the model has contained the result.
pub(crate) fn is_in_record(rows: &ConversationRows, call: SequencePosition) -> bool {
    let records = rows.tools.iter().filter_map(|(_, record)| record.as_ref().ok());
    let mut of_call = records.filter(|record| record.call == call);
    of_call.any(|record| matches!(record.result, RecordedResult::Apart(_)))
}

fn problems_of_records(rows: &ConversationRows) -> Vec<Problem> {
    let describe =
        |index, what: &dyn std::fmt::Display| format!("the record of its call {index}: {what}");
    let unreadable: Vec<u64> = rows
        .messages
        .iter()
        .filter(|(_, message)| message.is_err())
        .map(|(sequence, _)| *sequence)
        .collect();
    let refers_to_unreadable = |record: &ToolRecord| {
        let result = match &record.result {
            RecordedResult::InMessage(position) => Some(position.sequence),
            RecordedResult::None | RecordedResult::Apart(_) => None,
        };
        [Some(record.call.sequence), result]
            .into_iter()
            .flatten()
            .any(|sequence| unreadable.contains(&sequence))
    };
    rows.tools
        .iter()
        .filter_map(|(call, record)| {
            let what = match record {
                Err(reason) => describe(call.index, reason),
                Ok(record) if refers_to_unreadable(record) => return None,
                Ok(record) => {
                    let error = record.resolve(|sequence| readable(rows, sequence)).err()?;
                    describe(call.index, &error)
                }
            };
            Some(Problem::new(call.sequence, what))
        })
        .collect()
}

/// Replays the messages, and returns the problems because of which every provider would reject the
/// replayed messages.
fn problems_of_replay(first: u64, messages: &Messages) -> Vec<Problem> {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(messages, 0);
    let view = replay.view();
    let Err(invalid) = validate_messages(view.iter().map(|message| &**message)) else {
        return Vec::new();
    };
    let ids = (first..).zip(messages.iter()).filter_map(|(sequence, it)| Some((it.id?, sequence)));
    let sequences: HashMap<MessageId, u64> = ids.collect();
    let stored = |shown: usize| {
        let before = view.take(shown + 1);
        let known = before.iter().rev().find_map(|it| sequences.get(&it.id?).copied());
        known.unwrap_or(first)
    };
    invalid
        .faults()
        .map(|fault| {
            let what = format!("in the messages that a model receives, counted from 0, {fault}");
            Problem::new(stored(fault.message()), what)
        })
        .collect()
}
