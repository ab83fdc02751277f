//! Repairs messages.
//!
//! - A dangling call gets the result that the record of tool calls assigns to it, if a message contains
//!   this result. Otherwise it gets the result [`INTERRUPTED`]. The call is not repaired if only the record
//!   contains its result, because a run adds this result to the messages later. A call that waits for
//!   approval is not dangling, even if it was approved, because it can still get a result.
//! - A result that answers no call, or answers a call that has a result, is moved from the parts of its
//!   message to the metadata. The key is [`REMOVED_RESULTS`], and the value is a list with the stored JSON
//!   text of each result.

mod edit;
mod find;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tower_chat_core::{
    Messages, Role, ToolResult, ToolStatus,
    pairing::{Piece, asked_call, pieces},
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};
use tower_chat_layers::replay::INTERRUPTED;

use self::edit::Edit;
pub use self::find::{Mismatch, mismatches, mismatches_of_readable};
use crate::extract;

/// The key of the metadata of a message for the results that a repair removed from the message. The value
/// is a list of texts, each the JSON of a [`ToolResult`].
pub const REMOVED_RESULTS: &str = "tower-chat.removed_results";

/// The repair of a dangling call.
#[derive(Debug, Clone, PartialEq)]
pub enum Filling {
    /// Adds this result.
    Result(Box<ToolResult>),
    /// Adds a result with the text [`INTERRUPTED`].
    Interrupted,
    /// Adds no result, because the record of tool calls contains the result and no message may contain it
    /// yet.
    Leave,
}

/// Returns the messages without the mismatches that [`mismatches`] finds in them. Dangling calls remain if
/// `filling` returns [`Filling::Leave`], or if their message is not one of the assistant. Messages that are
/// not changed are shared with the input.
///
/// `first` is the number of the first message. `filling` returns the repair of the dangling call at a
/// position.
///
/// ```
/// use tower_chat::{Message, ToolCall, message::Messages, repair::{Filling, mismatches, repaired}};
/// let stored: Messages = [
///     Message::user("Weather?"),
///     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
/// ].into();
/// let repaired = repaired(&stored, 1, |_call| Filling::Interrupted);
/// assert!(mismatches(&repaired, 1).is_empty());
/// assert_eq!(repaired.len(), 2);
/// ```
pub fn repaired(
    messages: &Messages,
    first: u64,
    mut filling: impl FnMut(SequencePosition) -> Filling,
) -> Messages {
    let mut edits: BTreeMap<u64, Edit> = BTreeMap::new();
    for mismatch in mismatches(messages, first) {
        match mismatch {
            Mismatch::DuplicateResult { result, .. } | Mismatch::OrphanResult { result, .. } => {
                edits.entry(result.sequence).or_default().remove(result.index);
            }
            Mismatch::DanglingCall { call, tool, call_id } => {
                let Some((sequence, part)) = position_for_result(messages, first, call) else {
                    continue;
                };
                let mut result = match filling(call) {
                    Filling::Leave => continue,
                    Filling::Result(result) => *result,
                    Filling::Interrupted => {
                        let mut interrupted = ToolResult::error(&call_id, INTERRUPTED);
                        interrupted.name = Some(tool);
                        interrupted
                    }
                };
                result.call_id = Some(call_id);
                edits.entry(sequence).or_default().insert(part, result);
            }
        }
    }
    (first..)
        .zip(messages.iter())
        .map(|(sequence, message)| match edits.get(&sequence) {
            Some(edit) => Arc::new(edit.apply(message)),
            None => message.clone(),
        })
        .collect()
}

/// Returns the rows of the record of tool calls that must be written after a repair of messages, and the
/// calls whose rows must be removed.
///
/// A row is written if a repair added the result of its call to a message, or if the position of the result
/// differs from that in the repaired messages. Its status becomes `Interrupted` if it was `Pending` and the
/// added result is [`INTERRUPTED`]. A row is removed if its call is not in the messages. Rows that are
/// correct are in neither list. `first` is the number of the first message.
pub fn repaired_records(
    records: &[ToolRecord],
    first: u64,
    stored: &Messages,
    repaired: &Messages,
) -> (Vec<ToolRecord>, Vec<SequencePosition>) {
    let known = |messages| {
        let records = extract(messages, first, 0).into_iter();
        records.map(|record| (record.call, record)).collect::<HashMap<_, _>>()
    };
    let (before, after) = (known(stored), known(repaired));
    let (mut written, mut removed) = (Vec::new(), Vec::new());
    for record in records {
        let Some(now) = after.get(&record.call) else {
            removed.push(record.call);
            continue;
        };
        let was_open = before.get(&record.call).is_none_or(|it| it.result == RecordedResult::None);
        let is_filled = was_open && now.result != RecordedResult::None;
        let mut changed = record.clone();
        if is_filled || matches!(record.result, RecordedResult::InMessage(_)) {
            changed.result = now.result.clone();
        }
        let result = match &now.result {
            RecordedResult::InMessage(position) => result_at(repaired, first, *position),
            RecordedResult::None | RecordedResult::Apart(_) => None,
        };
        let is_interrupted = result.is_some_and(|result| result.text() == INTERRUPTED);
        if is_filled && is_interrupted && record.status == ToolStatus::Pending {
            changed.status = ToolStatus::Interrupted;
        }
        if changed != *record {
            written.push(changed);
        }
    }
    (written, removed)
}

/// Returns the result at a position of a conversation.
fn result_at(messages: &Messages, first: u64, position: SequencePosition) -> Option<ToolResult> {
    let index = usize::try_from(position.sequence.checked_sub(first)?).ok()?;
    messages.get(index)?.results().nth(position.index as usize).cloned()
}

/// Returns the position for the inserted result of a call: the number of a message, and the index of the
/// part before which the result is inserted. The position follows all other results of the round, because a
/// result that precedes them could change which calls they answer. Returns `None` if the call is not in a
/// message of the assistant.
fn position_for_result(
    messages: &Messages,
    first: u64,
    call: SequencePosition,
) -> Option<(u64, usize)> {
    let position = usize::try_from(call.sequence.checked_sub(first)?).ok()?;
    let message = messages.get(position)?;
    if message.role != Role::Assistant {
        return None;
    }
    let mut calls_before = 0;
    let all = pieces(message);
    let mut pieces = all.iter().skip_while(|piece| {
        let parts = message.parts.get(piece.parts.clone()).unwrap_or_default();
        calls_before += parts.iter().filter_map(asked_call).count();
        calls_before <= call.index as usize
    });
    pieces.next()?;
    // The message itself contains the results of this round, followed by pieces of a later round.
    if let (Some(Piece { parts, .. }), Some(_)) = (pieces.next(), pieces.next()) {
        return Some((call.sequence, parts.end));
    }
    let following = (call.sequence + 1..).zip(messages.iter_from(position + 1));
    let results = following.take_while(|(_, message)| message.role == Role::Tool).last();
    Some(match results {
        Some((sequence, message)) => (sequence, message.parts.len()),
        None => (call.sequence, message.parts.len()),
    })
}

#[cfg(test)]
mod tests;
