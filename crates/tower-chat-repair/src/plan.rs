//! Plans the repair of a conversation.
//!
//! The *record of tool calls* is a part of a store: one row for each call, with its status, times
//! and result.

use std::collections::{HashMap, HashSet};

use tower_chat_core::{
    ConversationKey, Message, Messages, ToolResult,
    store::{
        ConversationRows, Rewrite, SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};

use crate::{
    Filling, Mismatch, Problem, mismatches,
    problems::{all_messages, is_in_record, readable},
    repaired, repaired_records,
};

/// The changes of messages and rows that repair a conversation (a [`Rewrite`]), and a description
/// of each repair.
pub(super) struct Plan {
    pub(super) rewrite: Rewrite,
    pub(super) repairs: Vec<Problem>,
}

impl Plan {
    /// Plans the repairs of a conversation. The plan is empty if a message is missing or
    /// unreadable, because this message may contain the missing results of calls, and the calls of
    /// results without a call.
    pub(super) fn new(key: &ConversationKey, rows: &ConversationRows) -> Self {
        let mut rewrite = Rewrite::new(key.clone(), rows.head.revision);
        let Some(stored) = all_messages(rows) else { return Self { rewrite, repairs: Vec::new() } };
        let first = rows.head.pruned.saturating_add(1);
        let found = mismatches(&stored, first);
        let recorded = recorded_results(rows, &found);
        let after = repaired(&stored, first, |call| match recorded.get(&call) {
            _ if is_in_record(rows, call) => Filling::Leave,
            Some(result) => Filling::Result(Box::new(result.clone())),
            None => Filling::Interrupted,
        });
        let is_left: HashSet<Mismatch> = mismatches(&after, first).into_iter().collect();
        let mut repairs: Vec<Problem> = found
            .iter()
            .filter(|mismatch| !is_left.contains(mismatch))
            .map(|mismatch| repair_of(mismatch, &recorded))
            .collect();

        rewrite.messages = changed(first, &stored, &after);
        let resolves = |record: &ToolRecord| record.resolve(|it| readable(rows, it)).is_ok();
        let records: Vec<ToolRecord> = rows
            .tools
            .iter()
            .filter_map(|(_, record)| record.as_ref().ok())
            .filter(|record| !rewrite.messages.is_empty() || !resolves(record))
            .cloned()
            .collect();
        (rewrite.tools, rewrite.removed_tools) = repaired_records(&records, first, &stored, &after);
        for record in records.iter().filter(|record| !resolves(record)) {
            let SequencePosition { sequence, index } = record.call;
            let what = match rewrite.removed_tools.contains(&record.call) {
                true => format!(
                    "the record of its call {index} refers to no call: the record is deleted"
                ),
                false => {
                    format!(
                        "the record of its call {index} refers to no result: the record is corrected"
                    )
                }
            };
            repairs.push(Problem::new(sequence, what));
        }
        repairs.sort_by_key(|repair| repair.message);
        Self { rewrite, repairs }
    }
}

/// Applies a rewrite to the rows in memory, without reading the store again.
pub(super) fn apply(rewrite: &Rewrite, rows: &mut ConversationRows) {
    for (sequence, message) in &rewrite.messages {
        if let Some(row) = rows.messages.iter_mut().find(|(it, _)| it == sequence) {
            row.1 = Ok(message.clone().into());
        }
    }
    rows.tools.retain(|(call, _)| !rewrite.removed_tools.contains(call));
    for record in &rewrite.tools {
        if let Some(row) = rows.tools.iter_mut().find(|(call, _)| *call == record.call) {
            row.1 = Ok(record.clone());
        }
    }
}

/// Returns each result that the record of tool calls assigns to a call although neither the id nor
/// the order of the result matches the call. The key is the position of the call.
fn recorded_results(
    rows: &ConversationRows,
    found: &[Mismatch],
) -> HashMap<SequencePosition, ToolResult> {
    let unmatched: HashSet<SequencePosition> = found
        .iter()
        .filter_map(|mismatch| match mismatch {
            Mismatch::OrphanResult { result, .. } => Some(*result),
            _ => None,
        })
        .collect();
    let is_free = |record: &&ToolRecord| match &record.result {
        RecordedResult::InMessage(position) => unmatched.contains(position),
        RecordedResult::Apart(_) | RecordedResult::None => false,
    };
    let records = rows.tools.iter().filter_map(|(_, record)| record.as_ref().ok());
    records
        .filter(is_free)
        .filter_map(|record| {
            let invocation = record.resolve(|sequence| readable(rows, sequence)).ok()?;
            Some((record.call, invocation.result?))
        })
        .collect()
}

fn repair_of(mismatch: &Mismatch, recorded: &HashMap<SequencePosition, ToolResult>) -> Problem {
    let done = match mismatch {
        Mismatch::DanglingCall { call, .. } if recorded.contains_key(call) => {
            "it receives the result that the record of tool calls assigns to it"
        }
        Mismatch::DanglingCall { .. } => "it receives a result that reports an interruption",
        _ => "it is moved into the metadata of the message",
    };
    Problem::new(mismatch.sequence(), format!("{mismatch}: {done}"))
}

/// Returns the messages that a repair has changed, each with its number.
fn changed(first: u64, stored: &Messages, after: &Messages) -> Vec<(u64, Message)> {
    let pairs = (first..).zip(stored.iter().zip(after.iter()));
    pairs
        .filter(|(_, (stored, after))| stored != after)
        .map(|(sequence, (_, after))| (sequence, (**after).clone()))
        .collect()
}
