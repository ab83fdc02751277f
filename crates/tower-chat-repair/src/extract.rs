//! Derives the record of tool calls from messages.
//!
//! A store has one row for each call: status, times, result, and the position of the call and of
//! its result. A *round* is the calls of one answer of the model, and their results. A *turn* is
//! the messages from a message of the user to the final answer. A *replay* converts stored messages
//! to the messages of a request to the model.

use tower_chat_core::{
    Message, Messages, ToolStatus,
    pairing::{CallLog, LoggedCall},
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};
use tower_chat_layers::replay::Turns;

/// Returns the record of tool calls that a store would have for consecutive messages of a
/// conversation: one row for each call.
///
/// `first` is the number of the first of these messages, counted from 1 in the whole conversation.
/// `round_index` is the index of the first round in these messages, counted from 0 in the turn of
/// the round.
///
/// ```
/// use tower_chat::{
///     Message, ToolCall, ToolResult, message::Messages, repair::extract, tool::ToolStatus,
/// };
/// let messages: Messages = [
///     Message::user("Weather?"),
///     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
///     Message::tool_results([ToolResult::new("c1", "sunny")]),
/// ].into();
/// let records = extract(&messages, 1, 0);
/// assert_eq!((records[0].call.sequence, records[0].status), (2, ToolStatus::Ok));
/// ```
pub fn extract(messages: &Messages, first: u64, round_index: u32) -> Vec<ToolRecord> {
    let mut extraction = Extraction::from_round(round_index);
    for (sequence, message) in (first..).zip(messages.iter()) {
        extraction.push(sequence, message);
    }
    extraction.into_records()
}

/// Derives the record of tool calls from messages that are added in their order, the oldest first.
/// For each call, the record contains the position of the call, the position of its result, and
/// whether the call succeeded, failed, was rejected, waits for approval or has no result.
///
/// A result is matched with a call by the rules of [`pairing`](tower_chat_core::pairing). Results
/// that match no call are ignored, as are the results of tools that the provider ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extraction {
    turns: Turns,
    /// Whether a message that begins a turn has been added.
    is_continued: bool,
    /// The index, within the current turn, of the next round.
    next_round: u32,
    log: CallLog,
    /// For each call in `log`, the index of the call's round within its turn.
    rounds: Vec<u32>,
}

impl Extraction {
    /// Creates an extraction for messages that begin with the first message of a conversation or of
    /// a run.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates an extraction for messages that may begin in the middle of a turn. The first round
    /// of these messages receives the index `round_index`.
    pub(crate) fn from_round(round_index: u32) -> Self {
        Self { next_round: round_index, ..Self::default() }
    }

    /// Adds the next message. `sequence` is the number of the message in the conversation, from 1.
    pub(crate) fn push(&mut self, sequence: u64, message: &Message) {
        // Each turn begins with round 0. The first turn is the exception, because its first round
        // has the index that was passed to `from_round`.
        let begins_turn = self.turns.begins_with(message);
        if begins_turn && std::mem::replace(&mut self.is_continued, true) {
            self.next_round = 0;
        }
        self.log.push(sequence, message);
        for call in self.log.calls().iter().skip(self.rounds.len()) {
            let of_round = self.rounds.get(call.round).copied();
            self.rounds.push(of_round.unwrap_or_else(|| {
                let next = self.next_round.saturating_add(1);
                std::mem::replace(&mut self.next_round, next)
            }));
        }
    }

    /// Returns one row of the record for each call, in the order of the calls.
    pub(crate) fn into_records(self) -> Vec<ToolRecord> {
        (0..self.rounds.len()).filter_map(|index| self.record(index)).collect()
    }

    fn record(&self, index: usize) -> Option<ToolRecord> {
        let (call, round_index) = (self.log.calls().get(index)?, *self.rounds.get(index)?);
        let position = SequencePosition { sequence: call.message, index: call.index };
        let mut record =
            ToolRecord::pending(position, round_index, &*call.call.id, &call.call.tool);
        record.status = status(call);
        if let Some(result) = call.result {
            let (sequence, index) = (result.position.message, result.position.index);
            record.result = RecordedResult::InMessage(SequencePosition { sequence, index });
        }
        Some(record)
    }
}

fn status(call: &LoggedCall) -> ToolStatus {
    match (call.is_approved, call.result) {
        (Some(false), _) => ToolStatus::RejectedByApproval,
        (_, Some(result)) if result.is_error => ToolStatus::Error,
        (_, Some(_)) => ToolStatus::Ok,
        (None, None) if call.needs_approval => ToolStatus::PendingApproval,
        (Some(true) | None, None) => ToolStatus::Pending,
    }
}

#[cfg(test)]
mod tests;
