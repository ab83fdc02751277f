//! Repairs messages.
//!
//! - A *dangling call*, which has no result, receives the result that the record of tool calls (one
//!   row for each call) assigns to the call, if a message contains this result. If only the record
//!   contains the result, the call is not repaired, because a run will add the result to the
//!   messages. If there is no result, the call receives a result with the text [`INTERRUPTED`]. A
//!   call that was stored as a request for approval is not dangling, even after its approval,
//!   because a run may still execute it.
//! - A result that answers no call, or that answers a call which already has a result, is moved
//!   from the parts of its message to the metadata of the message, under the key
//!   [`REMOVED_RESULTS`].

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

/// The key, in the metadata of a message, of the results that a repair removed from the message.
/// The value is a list of strings, each of which is a [`ToolResult`] in JSON.
pub const REMOVED_RESULTS: &str = "tower-chat.removed_results";

/// The repair of a dangling call.
#[derive(Debug, Clone, PartialEq)]
pub enum Filling {
    /// Adds this result.
    Result(Box<ToolResult>),
    /// Adds a result with the text [`INTERRUPTED`].
    Interrupted,
    /// Adds no result. Return this variant for a call whose result is in the record of tool calls,
    /// because a later run adds this result to the messages.
    Leave,
}

/// Repairs the mismatches that [`mismatches`] finds in messages, and returns the resulting
/// messages. A dangling call is not repaired if `filling` returns [`Filling::Leave`], or if the
/// role of its message is not `Assistant`. Messages that need no repair are shared with the input
/// instead of copied.
///
/// `first` is the number of the first message. `filling` decides how the dangling call at a
/// position is repaired.
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

/// Returns the rows of the record of tool calls that must be written after messages were repaired,
/// and the positions of the calls whose rows must be removed.
///
/// - A row is written if the repair added a result for its call, or if the row refers to a result
///   at another position than the repaired messages.
/// - The status of a row changes from `Pending` to `Interrupted` if the added result is
///   [`INTERRUPTED`].
/// - A row is removed if the messages do not contain its call.
///
/// `first` is the number of the first message.
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

/// Returns the position at which a result for a call is inserted: the number of a message, and the
/// index of the part before which the result is inserted. The position is after all existing
/// results of the round (the calls of one answer and their results). Otherwise, an existing result
/// without an id could be matched with another call than before. Returns `None` if the role of the
/// call's message is not `Assistant`.
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
    // The results of this round are in the same message as its calls, because the message also
    // contains a later round.
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
