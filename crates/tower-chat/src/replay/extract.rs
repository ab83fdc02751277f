//! The record of tool calls, as messages tell it.

use std::collections::BTreeSet;

use tower_chat_core::{
    Message, Messages, Part, Role, ToolCall, ToolResult, ToolStatus,
    store::{CallPlace, RecordedResult, ToolRecord},
};

use super::{
    call_ids::{Place, call_ids},
    order::{Piece, pieces},
    pairing::{Answers, Asked, answers, is_named, owed_call},
    turns::Turns,
};

/// The tool calls in messages that follow each other in a conversation, the first of which has
/// the number `first` there; rounds are counted from `round_index` on.
///
/// ```
/// use tower_chat::{core::{Message, Messages, ToolCall, ToolResult, ToolStatus}, replay::extract};
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
/// calls as replays match them: by id within the round, else by place where an id is missing. A
/// result that answers no call of its round may answer an earlier one that was left without, by
/// its id; any other is ignored. Results of tools that the provider ran itself are no matter of
/// the record.
///
/// An extraction can be kept while a run goes on: [`take_changed`](Self::take_changed) gives what
/// there is to say since the last time.
#[derive(Debug, Clone, Default)]
pub struct Extraction {
    turns: Turns,
    is_continued: bool,
    next_round: u32,
    calls: Vec<Seen>,
    /// Where the calls of the open round begin among all; `None` if none is open.
    open: Option<usize>,
    changed: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
struct Seen {
    call: ToolCall,
    /// The approval request that the call waits for, or waited for.
    request: Option<String>,
    is_rejected: bool,
    record: ToolRecord,
}

impl Extraction {
    /// Starts before the first message of a conversation or of a run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts in the middle of a turn, before the round of this number.
    pub fn from_round(round_index: u32) -> Self {
        Self { next_round: round_index, ..Self::default() }
    }

    /// Takes the next message, which has this number in its conversation, from 1.
    pub fn push(&mut self, sequence: u64, message: &Message) {
        // The first message may be in the middle of a turn.
        let begins_turn = self.turns.begins_with(message);
        if begins_turn && std::mem::replace(&mut self.is_continued, true) {
            self.next_round = 0;
        }
        for Piece { role, parts } in pieces(message) {
            let before = message.parts.get(..parts.start).unwrap_or_default();
            let parts = message.parts.get(parts).unwrap_or_default();
            if role == Role::Tool {
                let first = before.iter().filter_map(Part::as_tool_result).count();
                self.push_results(sequence, parts, first);
            } else if parts.iter().any(|part| matches!(part, Part::ApprovalResponse(_))) {
                self.push_approvals(parts);
            } else {
                let first = before.iter().filter_map(owed_call).count();
                self.push_asking(sequence, message, parts, first);
            }
        }
    }

    /// What is known of every call so far, in their order.
    pub fn into_records(self) -> Vec<ToolRecord> {
        self.calls.into_iter().map(|seen| seen.record).collect()
    }

    /// What is known of the calls that are new, or of which there is something new, since this
    /// was last called.
    pub fn take_changed(&mut self) -> Vec<ToolRecord> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .filter_map(|index| self.calls.get(index))
            .map(|seen| seen.record.clone())
            .collect()
    }
}

impl Extraction {
    /// A message of the model, or an input: either ends the open round.
    fn push_asking(&mut self, sequence: u64, message: &Message, parts: &[Part], first: usize) {
        self.open = None;
        let asked = parts.iter().filter_map(|part| Some((part, owed_call(part)?)));
        let position = usize::try_from(sequence).unwrap_or(usize::MAX);
        let place = Place::of(message, position);
        let ids = call_ids(parts.iter().filter_map(owed_call), place, first);
        for (index, ((part, call), call_id)) in (first..).zip(asked.zip(ids)) {
            let new = self.calls.len();
            self.open.get_or_insert(new);
            let place = CallPlace { sequence, index: small(index) };
            let mut record = ToolRecord::pending(place, self.next_round, call_id, &call.name);
            let request = match part {
                Part::ApprovalRequest(request) => Some(request.id.clone()),
                _ => None,
            };
            if request.is_some() {
                record.status = ToolStatus::PendingApproval;
            }
            self.calls.push(Seen { call: call.clone(), request, is_rejected: false, record });
            self.changed.insert(new);
        }
        if self.open.is_some() {
            self.next_round = self.next_round.saturating_add(1);
        }
    }

    /// Answers to approval requests; the round they belong to stays open.
    fn push_approvals(&mut self, parts: &[Part]) {
        for part in parts {
            let Part::ApprovalResponse(response) = part else { continue };
            let waiting = self.calls.iter().rposition(|seen| {
                seen.record.status == ToolStatus::PendingApproval
                    && seen.request.as_ref() == Some(&response.request_id)
            });
            let Some(index) = waiting else { continue };
            if let Some(seen) = self.calls.get_mut(index) {
                seen.is_rejected = !response.approved;
                seen.record.status = match response.approved {
                    true => ToolStatus::Pending,
                    false => ToolStatus::RejectedByApproval,
                };
                self.changed.insert(index);
            }
        }
    }

    fn push_results(&mut self, sequence: u64, parts: &[Part], first: usize) {
        let results = parts.iter().filter_map(Part::as_tool_result);
        for (index, result) in (first..).zip(results) {
            let place = CallPlace { sequence, index: small(index) };
            let Some(answered) = self.call_answered_by(result) else { continue };
            if let Some(seen) = self.calls.get_mut(answered) {
                seen.record.result = RecordedResult::InMessage(place);
                seen.record.status = match (seen.is_rejected, result.is_error) {
                    (true, _) => ToolStatus::RejectedByApproval,
                    (false, true) => ToolStatus::Error,
                    (false, false) => ToolStatus::Ok,
                };
                self.changed.insert(answered);
            }
        }
    }

    fn call_answered_by(&self, result: &ToolResult) -> Option<usize> {
        let open = self.open.unwrap_or(self.calls.len());
        let (earlier, round) = self.calls.split_at_checked(open)?;
        match answers(result, round.iter().map(Seen::asked)) {
            Answers::Call(index) => Some(open + index),
            Answers::Again => None,
            Answers::Nothing => earlier.iter().rposition(|seen| {
                !seen.is_answered() && is_named(result, &seen.call, &seen.record.call_id)
            }),
        }
    }
}

impl Seen {
    fn asked(&self) -> Asked<'_> {
        Asked { call: &self.call, id: &self.record.call_id, is_answered: self.is_answered() }
    }

    fn is_answered(&self) -> bool {
        self.record.result != RecordedResult::None
    }
}

/// A place in a message; no message has so many parts that it does not fit.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
