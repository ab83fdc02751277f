//! The record of tool calls, as messages tell it.

use std::collections::BTreeSet;

use tower_chat_core::{
    CallPosition, Message, Messages, Part, Role, ToolCall, ToolResult, ToolStatus,
    store::{CallPlace, RecordedResult, ToolRecord},
};

use super::{
    call_ids::{AnswerIds, Place},
    order::{Piece, pieces},
    pairing::{Answers, Asked, answers, is_named, owed_call, pair_round},
    round::named_by,
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
    open: Option<OpenRound>,
    /// The requests for approval that were answered since the model spoke last.
    decided: Vec<String>,
    changed: BTreeSet<usize>,
}

/// The round whose results come next.
#[derive(Debug, Clone)]
struct OpenRound {
    /// Where its calls begin among all.
    first: usize,
    /// Where those of the last message of the answer begin.
    last: usize,
    ids: AnswerIds,
    round_index: u32,
    /// Its results so far.
    results: Vec<(CallPlace, ToolResult)>,
    /// No more messages belong to the answer.
    is_answered: bool,
}

#[derive(Debug, Clone)]
struct Seen {
    call: ToolCall,
    /// How results name it.
    named_by: CallPosition,
    /// The first call of the same answer.
    round: usize,
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
    /// A message of the model, or an input. Either ends the open round, unless it belongs to the
    /// answer that opened it.
    fn push_asking(&mut self, sequence: u64, message: &Message, parts: &[Part], first: usize) {
        // Calls of anybody but the model are not replayed, so nothing can answer them.
        let parts = if message.role == Role::Assistant { parts } else { &[] };
        let asked = parts.iter().filter_map(|part| Some((part, owed_call(part)?)));
        let position = usize::try_from(sequence).unwrap_or(usize::MAX);
        let place = Place::of(message, position);
        // Of a row that is split, the first piece alone has the row's id.
        let run = message.id.filter(|_| first == 0).map(|id| id.run);
        if message.role == Role::Assistant {
            self.decided.clear();
        }
        let mut open = self
            .open
            .take()
            .filter(|open| !open.is_answered && open.ids.is_continued_by(message.role, run));
        let mut ids = open.as_ref().map(|open| open.ids.clone()).unwrap_or_default();
        let owed = parts.iter().filter_map(owed_call);
        let call_ids = ids.next_calls(message.role, run, owed, place, first);
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
            let place = CallPlace { sequence, index: small(index) };
            let mut record = ToolRecord::pending(place, round_index, call_id, &call.name);
            let request = match part {
                Part::ApprovalRequest(request) => Some(request.id.clone()),
                _ => None,
            };
            if request.is_some() {
                record.status = ToolStatus::PendingApproval;
            }
            let named_by = named_by(message, position, index);
            let call = call.clone();
            let round = self.open.as_ref().map_or(new, |open| open.first);
            let is_rejected = false;
            self.calls.push(Seen { call, named_by, round, request, is_rejected, record });
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
        let places = (first..).map(|index| CallPlace { sequence, index: small(index) });
        let results: Vec<_> = places
            .zip(results)
            .map(|(place, result)| (place, self.naming_earlier(self.naming_decided(result))))
            .collect();
        let Some(mut open) = self.open.take() else {
            let all = self.calls.len();
            results.iter().for_each(|(place, result)| self.push_late(all, *place, result));
            return;
        };
        open.is_answered = true;
        let before = open.results.len();
        open.results.extend(results);
        // With more results others may turn out to be the answers of other calls.
        let calls = self.calls.get(open.first..).unwrap_or_default();
        let mut asked: Vec<_> = calls.iter().map(|seen| seen.asked(false)).collect();
        let all: Vec<_> = open.results.iter().map(|(_, result)| result).collect();
        let found = pair_round(&mut asked, open.last - open.first, &all);
        let mut answered = vec![None; asked.len()];
        for ((place, result), found) in open.results.iter().zip(&found) {
            if let Answers::Call(index) = found
                && let Some(answered) = answered.get_mut(*index)
            {
                *answered = Some((*place, result.is_error));
            }
        }
        for (index, answer) in (open.first..).zip(answered) {
            self.answer(index, answer);
        }
        for ((place, result), found) in open.results.iter().zip(&found).skip(before) {
            if *found == Answers::Nothing {
                self.push_late(open.first, *place, result);
            }
        }
        self.open = Some(open);
    }

    /// The result, naming its call by position if that was approved or rejected right before.
    fn naming_decided(&self, result: &ToolResult) -> ToolResult {
        let mut result = result.clone();
        let is_decided = |seen: &&Seen| {
            let request = seen.request.as_ref();
            !seen.is_answered() && request.is_some_and(|request| self.decided.contains(request))
        };
        let decided = self.calls.iter().filter(is_decided).map(|seen| seen.asked(false));
        if result.call.is_none()
            && !self.decided.is_empty()
            && let decided = decided.collect::<Vec<_>>()
            && let Answers::Call(index) = answers(&result, decided.iter().copied())
        {
            result.call = decided.get(index).and_then(|call| call.position);
        }
        result
    }

    /// The result, naming its call by position if its id is that of an earlier call without a
    /// result, and of none of the open round.
    fn naming_earlier(&self, mut result: ToolResult) -> ToolResult {
        let Some(open) = self.open.as_ref().filter(|_| result.call.is_none()) else {
            return result;
        };
        let mut of_round = self.calls.get(open.first..).unwrap_or_default().iter();
        if !of_round.any(|seen| seen.is_named_by(&result))
            && let Some(earlier) = self.earlier_call(open.first, &result)
        {
            result.call = self.calls.get(earlier).map(|seen| seen.named_by);
        }
        result
    }

    /// A result that answers no call of the round which begins at `open`.
    fn push_late(&mut self, open: usize, place: CallPlace, result: &ToolResult) {
        if let Some(earlier) = self.earlier_call(open, result) {
            self.answer(earlier, Some((place, result.is_error)));
        }
    }

    /// The call before the round which begins at `open` that has no result, and that this one
    /// names: of the last answer with such calls, the first.
    fn earlier_call(&self, open: usize, result: &ToolResult) -> Option<usize> {
        let is_it = |seen: &Seen| !seen.is_answered() && seen.is_named_by(result);
        let earlier = self.calls.get(..open)?;
        let last = earlier.iter().rposition(is_it)?;
        let round = earlier.get(last)?.round;
        Some(earlier.iter().position(|seen| seen.round == round && is_it(seen)).unwrap_or(last))
    }

    /// Notes which result a call has, if it has one: where it stands, and whether it is an error.
    fn answer(&mut self, index: usize, answer: Option<(CallPlace, bool)>) {
        let Some(seen) = self.calls.get_mut(index) else { return };
        let before = (seen.record.result.clone(), seen.record.status);
        match answer {
            Some((place, is_error)) => {
                seen.record.result = RecordedResult::InMessage(place);
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

impl OpenRound {
    fn at(first: usize, round_index: u32) -> Self {
        Self {
            first,
            last: first,
            round_index,
            ids: AnswerIds::default(),
            results: Vec::new(),
            is_answered: false,
        }
    }
}

impl Seen {
    fn asked(&self, is_answered: bool) -> Asked<'_> {
        let position = Some(self.named_by);
        Asked { call: &self.call, position, id: &self.record.call_id, is_answered }
    }

    fn is_named_by(&self, result: &ToolResult) -> bool {
        match result.call {
            Some(named) => named == self.named_by,
            None => is_named(result, &self.call, &self.record.call_id),
        }
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
