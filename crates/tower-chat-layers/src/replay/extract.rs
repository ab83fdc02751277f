//! The record of tool calls, as messages tell it.

mod open_round;

use std::collections::{BTreeSet, HashMap};

use tower_chat_core::{
    CallPosition, Message, Messages, Part, Role, ToolCall, ToolResult, ToolStatus,
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};

use self::open_round::OpenRound;
use super::{
    call_ids::IdBase,
    left_out::NamedCalls,
    order::{Piece, pieces},
    pairing::{Answers, Asked, Pairing, pending_call},
    round::named_by,
    turns::Turns,
};

/// The tool calls in messages that follow each other in a conversation, the first of which has
/// the number `first` there; rounds are counted from `round_index` on.
///
/// ```
/// use tower_chat::{Message, Messages, ToolCall, ToolResult, ToolStatus, replay::extract};
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
///
/// An extraction can be kept while a run goes on: [`take_changed`](Self::take_changed) gives what
/// there is to say since the last time.
#[derive(Debug, Clone, Default)]
pub struct Extraction {
    turns: Turns,
    is_continued: bool,
    next_round: u32,
    calls: Vec<Seen>,
    /// The calls before the open round that have no result.
    unanswered: NamedCalls,
    /// The calls by the requests for approval that they wait for, or waited for.
    by_request: HashMap<String, Vec<usize>>,
    open: Option<OpenRound>,
    /// The requests for approval that were answered since the model spoke last.
    decided: Vec<String>,
    changed: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
struct Seen {
    call: ToolCall,
    /// How results name it.
    named_by: CallPosition,
    /// The first call of the same answer.
    round: usize,
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
                let first = before.iter().filter_map(pending_call).count();
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
    /// A message of the model, or an input. Either ends the open round, unless it belongs to the
    /// answer that opened it.
    fn push_asking(&mut self, sequence: u64, message: &Message, parts: &[Part], first: usize) {
        // Calls of anybody but the model are not replayed, so nothing can answer them.
        let parts = if message.role == Role::Assistant { parts } else { &[] };
        let asked = parts.iter().filter_map(|part| Some((part, pending_call(part)?)));
        let position = usize::try_from(sequence).unwrap_or(usize::MAX);
        let base = IdBase::of(message, position);
        // Of a row that is split, the first piece alone has the row's id.
        let run = message.id.filter(|_| first == 0).map(|id| id.run);
        if message.role == Role::Assistant {
            self.decided.clear();
        }
        let mut open = self.open.take();
        if let Some(ended) =
            open.take_if(|open| open.is_answered || !open.ids.is_continued_by(message.role, run))
        {
            self.leave_out(ended.first);
        }
        let mut ids = open.as_ref().map(|open| open.ids.clone()).unwrap_or_default();
        let pending = parts.iter().filter_map(pending_call);
        let call_ids = ids.next_calls(message.role, run, pending, base, first);
        if open.is_none() && !call_ids.is_empty() {
            open = Some(OpenRound::at(self.calls.len(), self.next_round));
            self.next_round = self.next_round.saturating_add(1);
        }
        self.open = open.map(|open| OpenRound {
            last: if call_ids.is_empty() { open.last } else { self.calls.len() },
            ids,
            ..open
        });
        let round_index = self.open.as_ref().map_or(0, |open| open.round_index);
        for (index, ((part, call), call_id)) in (first..).zip(asked.zip(call_ids)) {
            let new = self.calls.len();
            let call_position = SequencePosition { sequence, index: small(index) };
            let mut record = ToolRecord::pending(call_position, round_index, call_id, &call.name);
            let request = match part {
                Part::ApprovalRequest(request) => Some(request.id.clone()),
                _ => None,
            };
            if let Some(request) = &request {
                record.status = ToolStatus::PendingApproval;
                self.by_request.entry(request.clone()).or_default().push(new);
            }
            let named_by = named_by(message, position, index);
            let call = call.clone();
            let round = self.open.as_ref().map_or(new, |open| open.first);
            let is_rejected = false;
            self.calls.push(Seen { call, named_by, round, is_rejected, record });
            self.changed.insert(new);
        }
    }

    /// Answers to approval requests; the round they belong to stays open.
    fn push_approvals(&mut self, parts: &[Part]) {
        if let Some(open) = &mut self.open {
            open.is_answered = true;
        }
        for part in parts {
            let Part::ApprovalResponse(response) = part else { continue };
            self.decided.push(response.request_id.clone());
            let calls = self.by_request.get(&response.request_id).into_iter().flatten().rev();
            let is_pending = |seen: &Seen| seen.record.status == ToolStatus::PendingApproval;
            let mut calls = calls.copied();
            let waiting = calls.find(|call| self.calls.get(*call).is_some_and(is_pending));
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
        let positions = (first..).map(|index| SequencePosition { sequence, index: small(index) });
        if let Some(open) = &mut self.open {
            let calls = self.calls.get(open.first..).unwrap_or_default();
            open.pair(calls);
        }
        let named = positions
            .zip(results)
            .map(|(position, result)| (position, self.naming_earlier(self.naming_decided(result))));
        let results: Vec<(SequencePosition, ToolResult)> = named.collect();
        let Some(mut open) = self.open.take() else {
            results.iter().for_each(|(position, result)| self.push_late(*position, result));
            return;
        };
        open.is_answered = true;
        let before = open.results.len();
        open.results.extend(results);
        let found = open.paired(before);
        let found = found.unwrap_or_else(|| {
            // With more results others turned out to be the answers of other calls.
            let calls = self.calls.get(open.first..).unwrap_or_default();
            let found = open.pair_anew(calls);
            let mut answered = vec![None; calls.len()];
            for ((position, result), found) in open.results.iter().zip(&found) {
                if let Answers::Call(index) = found
                    && let Some(answered) = answered.get_mut(*index)
                {
                    *answered = Some((*position, result.is_error));
                }
            }
            for (index, answer) in (open.first..).zip(answered) {
                self.answer(index, answer);
            }
            found.into_iter().skip(before).collect()
        });
        let new = open.results.get(before..).unwrap_or_default();
        for ((position, result), found) in new.iter().zip(&found) {
            if let Answers::Call(index) = found {
                self.answer(open.first + index, Some((*position, result.is_error)));
            }
        }
        for ((position, result), found) in new.iter().zip(&found) {
            if *found == Answers::Nothing {
                self.push_late(*position, result);
            }
        }
        self.open = Some(open);
    }

    /// The result, naming its call by position if that was approved or rejected right before it.
    fn naming_decided(&self, result: &ToolResult) -> ToolResult {
        let mut result = result.clone();
        if result.call.is_some() || self.decided.is_empty() {
            return result;
        }
        let of_requests = self.decided.iter().filter_map(|request| self.by_request.get(request));
        let decided: BTreeSet<usize> = of_requests.flatten().copied().collect();
        let decided = decided.iter().filter_map(|call| self.calls.get(*call));
        let decided: Vec<_> = decided.filter(|seen| !seen.is_answered()).collect();
        let mut pairing = Pairing::new(decided.iter().map(|seen| seen.asked(false)).collect());
        if let Answers::Call(index) = pairing.answer(&result) {
            result.call = decided.get(index).map(|seen| seen.named_by);
        }
        result
    }

    /// The result, naming its call by position if its id is that of an earlier call without a
    /// result, and of none of the open round.
    fn naming_earlier(&self, mut result: ToolResult) -> ToolResult {
        let round = self.open.as_ref().and_then(|open| open.pairing.as_ref());
        let Some(round) = round.filter(|_| result.call.is_none()) else { return result };
        if !round.has_named(&result)
            && let Some((_, earlier)) = self.unanswered.find(&result)
        {
            result.call = self.calls.get(earlier).map(|seen| seen.named_by);
        }
        result
    }

    /// A result that answers no call of the open round, but may answer one before it: of the last
    /// answer with such calls, the first.
    fn push_late(&mut self, position: SequencePosition, result: &ToolResult) {
        let Some((round, earlier)) = self.unanswered.find(result) else { return };
        if let Some(seen) = self.calls.get(earlier) {
            self.unanswered.remove((round, earlier), seen.named_by, seen.asked(false).into_ids());
        }
        self.answer(earlier, Some((position, result.is_error)));
    }

    /// Those calls of an ended round, which begin at `first`, that have no result.
    fn leave_out(&mut self, first: usize) {
        for (index, seen) in self.calls.iter().enumerate().skip(first) {
            if !seen.is_answered() {
                let ids = seen.asked(false).into_ids();
                self.unanswered.insert((seen.round, index), seen.named_by, ids);
            }
        }
    }

    /// Notes which result a call has, if it has one: where it stands, and whether it is an error.
    fn answer(&mut self, index: usize, answer: Option<(SequencePosition, bool)>) {
        let Some(seen) = self.calls.get_mut(index) else { return };
        let before = (seen.record.result.clone(), seen.record.status);
        match answer {
            Some((position, is_error)) => {
                seen.record.result = RecordedResult::InMessage(position);
                seen.record.status = match (seen.is_rejected, is_error) {
                    (true, _) => ToolStatus::RejectedByApproval,
                    (false, true) => ToolStatus::Error,
                    (false, false) => ToolStatus::Ok,
                };
            }
            None if seen.is_answered() => {
                seen.record.result = RecordedResult::None;
                seen.record.status = ToolStatus::Pending;
            }
            None => {}
        }
        if before != (seen.record.result.clone(), seen.record.status) {
            self.changed.insert(index);
        }
    }
}

impl Seen {
    fn asked(&self, is_answered: bool) -> Asked<&str> {
        Asked::new(&self.call, Some(self.named_by), &self.record.call_id, is_answered)
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
