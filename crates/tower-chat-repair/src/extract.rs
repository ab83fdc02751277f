//! The record of tool calls, as messages tell it.

use tower_chat_core::{
    Message, Messages, ToolStatus,
    pairing::{CallLog, LoggedCall},
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};
use tower_chat_layers::replay::Turns;

/// The tool calls in messages that follow each other in a conversation, the first of which has
/// the number `first` there; rounds are counted from `round_index` on.
///
/// ```
/// use tower_chat::{Message, Messages, ToolCall, ToolResult, ToolStatus, repair::extract};
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

/// Finds the tool calls in messages that pass by, oldest first, and says of each what the
/// messages show: where it and its result are, and whether it succeeded, failed, was refused,
/// waits for approval, or was not answered.
///
/// Rounds are counted within their turn, over messages that carry calls. Results are matched to
/// calls as replays match them: by the position that they name, by id within the round, else by
/// place where an id is missing. A result that answers no call of its round may answer an earlier
/// one that was left without, by its id; any other is ignored. Results of tools that the provider ran itself are no matter of
/// the record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extraction {
    turns: Turns,
    is_continued: bool,
    next_round: u32,
    log: CallLog,
    /// The round of each call of the log, counted within its turn.
    rounds: Vec<u32>,
}

impl Extraction {
    /// Starts before the first message of a conversation or of a run.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Starts in the middle of a turn, before the round of this number.
    pub(crate) fn from_round(round_index: u32) -> Self {
        Self { next_round: round_index, ..Self::default() }
    }

    /// Takes the next message, which has this number in its conversation, from 1.
    pub(crate) fn push(&mut self, sequence: u64, message: &Message) {
        // The first message may be in the middle of a turn.
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

    /// What is known of every call so far, in their order.
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
