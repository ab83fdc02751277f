//! Derives the record of tool calls from messages.

use tower_chat_core::{
    Message, Messages, ToolStatus,
    pairing::{CallLog, LoggedCall},
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};
use tower_chat_layers::replay::Turns;

/// Returns the record of the tool calls in consecutive messages of a conversation. `first` is the number of
/// the first message in the conversation, from 1. `round_index` is the index of the first round in its
/// turn, from 0.
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

/// Collects the tool calls of the messages that are pushed, oldest first. For each call the record contains
/// the positions of the call and of its result, and whether the call succeeded, failed, was rejected, waits
/// for approval or has no result.
///
/// Rounds are numbered within their turn, and only messages with calls begin a round. Results are matched
/// with calls as in a replay: by the position that the result names, else by the id within the round, else
/// by the order within the round if an id is missing. A result without a call in its round is matched by
/// its id with an earlier call that has no result. All other results are ignored. The record does not
/// contain results of tools that the provider ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extraction {
    turns: Turns,
    /// Whether a turn has begun since the extraction was created.
    is_continued: bool,
    /// The index of the next round in its turn.
    next_round: u32,
    log: CallLog,
    /// For each call of the log, the index of its round in its turn.
    rounds: Vec<u32>,
}

impl Extraction {
    /// Creates an extraction whose first message is the first one of a conversation or of a run.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates an extraction whose first message may be in the middle of a turn. The first round has the
    /// index `round_index`.
    pub(crate) fn from_round(round_index: u32) -> Self {
        Self { next_round: round_index, ..Self::default() }
    }

    /// Adds the next message. `sequence` is its number in the conversation, from 1.
    pub(crate) fn push(&mut self, sequence: u64, message: &Message) {
        // The first turn keeps the index that the extraction was created with.
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

    /// Returns the rows of all calls, in the order of the calls.
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
