//! The calls of messages that follow each other, and what answers them.

use std::collections::{BTreeSet, HashMap};

use super::{
    AnswerKey, Answers, Candidate, IdBase, Ids, Matcher, Piece, Target, UnansweredCalls,
    asked_call, open_round::OpenRound, pieces,
};
use crate::{Message, Part, Role};

/// The calls of messages that follow each other, and what answers them.
///
/// ```
/// use tower_chat_core::{Message, ToolCall, ToolResult, pairing::CallLog};
/// let mut log = CallLog::default();
/// // One answer of two messages, whose calls have the same id.
/// log.push(1, &Message::tool_calls([ToolCall::new("c", "look", "{}")]));
/// log.push(2, &Message::tool_calls([ToolCall::new("c", "listen", "{}")]));
/// log.push(3, &Message::tool_results([ToolResult::new("c", "blue"), ToolResult::new("c", "a bird")]));
/// let results = log.calls().iter().map(|call| call.result.map(|result| result.position.index));
/// assert_eq!(results.collect::<Vec<_>>(), [Some(0), Some(1)]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct CallLog {
    calls: Vec<LoggedCall>,
    /// The calls before the open round that have no result.
    unanswered: UnansweredCalls,
    /// The calls by the requests for approval that they wait for, or waited for.
    by_request: HashMap<String, Vec<usize>>,
    open: Option<OpenRound>,
    /// The requests for approval that were answered since the model spoke last.
    decided: Vec<String>,
}

/// A call of the model.
#[derive(Debug, Clone)]
pub struct LoggedCall {
    /// Its position, its tool and the ids by which it is answered.
    pub call: Candidate<String>,
    /// The number of its message.
    pub message: u64,
    /// Its index among the [asked calls](Message::asked_calls) of its message.
    pub index: u32,
    /// The index of the first call of its round among all calls.
    pub round: usize,
    /// It waits, or waited, for approval.
    pub needs_approval: bool,
    /// Whether it was approved, once that was decided.
    pub is_approved: Option<bool>,
    /// Its result.
    pub result: Option<LoggedResult>,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedResult {
    /// Where it stands.
    pub position: ResultPosition,
    /// It says that the tool failed.
    pub is_error: bool,
}

/// Where a result stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResultPosition {
    /// The number of its message.
    pub message: u64,
    /// Its index among the results of its message.
    pub index: u32,
}

impl CallLog {
    /// The calls of these messages, which are numbered from 0.
    pub fn of<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Self {
        let mut log = Self::default();
        (0..).zip(messages).for_each(|(number, message)| log.push(number, message));
        log
    }

    /// Takes the next message, which has this number: a higher one than those before.
    pub fn push(&mut self, number: u64, message: &Message) {
        let pieces = pieces(message);
        let is_whole = pieces.len() == 1;
        if message.parts.is_empty() && message.role == Role::Assistant {
            // All it held was not to be stored, or it only says that its run has ended.
            return;
        }
        for Piece { role, parts } in pieces {
            let before = message.parts.get(..parts.start).unwrap_or_default();
            let key = match is_whole {
                true => AnswerKey::of(message),
                false => (role == Role::Assistant)
                    .then(|| AnswerKey::of_stretch(message, parts.start == 0)),
            };
            let parts = message.parts.get(parts).unwrap_or_default();
            if role == Role::Tool {
                let first = before.iter().filter_map(Part::as_tool_result).count();
                self.push_results(number, parts, first);
            } else if parts.iter().any(|part| matches!(part, Part::ApprovalResponse(_))) {
                self.push_approvals(parts);
            } else {
                let first = before.iter().filter_map(asked_call).count();
                self.push_asking((number, message), key, parts, first);
            }
        }
    }

    /// All calls so far, in their order.
    pub fn calls(&self) -> &[LoggedCall] {
        &self.calls
    }

    /// A message of the model, or an input. Either ends the open round, unless it belongs to the
    /// answer that opened it.
    fn push_asking(
        &mut self,
        (number, message): (u64, &Message),
        key: Option<AnswerKey>,
        parts: &[Part],
        first: usize,
    ) {
        // Only the model calls tools.
        let parts = if key.is_some() { parts } else { &[] };
        if key.is_some() {
            self.decided.clear();
        }
        let is_ended = |open: &mut OpenRound| open.is_answered || !open.ids.is_continued_by(key);
        if let Some(ended) = self.open.take_if(is_ended) {
            self.leave_out(ended.first);
        }
        let asked = || parts.iter().filter_map(asked_call);
        if asked().next().is_none() {
            return;
        }
        let next = self.calls.len();
        let open = self.open.get_or_insert_with(|| OpenRound::at(next));
        open.last = next;
        let round = open.first;
        let base = IdBase::of(message, usize::try_from(number).unwrap_or(usize::MAX));
        let ids = open.ids.next_calls(key, asked(), base, first);
        let calls = parts.iter().filter_map(|part| Some((part, asked_call(part)?)));
        for (index, ((part, call), id)) in (first..).zip(calls.zip(ids)) {
            let new = self.calls.len();
            let request = match part {
                Part::ApprovalRequest(request) => Some(&request.id),
                _ => None,
            };
            if let Some(request) = request {
                self.by_request.entry(request.clone()).or_default().push(new);
            }
            self.calls.push(LoggedCall {
                call: Candidate::new(call, Some(base.call_position(index)), &id).into_owned(),
                message: number,
                index: small(index),
                round,
                needs_approval: request.is_some(),
                is_approved: None,
                result: None,
            });
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
            let is_pending =
                |call: &LoggedCall| call.is_approved.is_none() && call.result.is_none();
            let mut calls = calls.copied();
            let waiting = calls.find(|call| self.calls.get(*call).is_some_and(is_pending));
            if let Some(index) = waiting
                && let Some(call) = self.calls.get_mut(index)
            {
                call.is_approved = Some(response.approved);
            }
        }
    }

    fn push_results(&mut self, number: u64, parts: &[Part], first: usize) {
        let mut open = self.open.take();
        if let Some(open) = &mut open {
            open.begin_results(&self.calls);
        }
        let mut decided = self.decided_calls();
        let mut earlier = self.unanswered.clone();
        let results = (first..).zip(parts.iter().filter_map(Part::as_tool_result));
        let results = results.map(|(index, result)| {
            let target = self.named(result.into(), open.as_mut(), &mut decided, &mut earlier);
            let position = ResultPosition { message: number, index: small(index) };
            (target, LoggedResult { position, is_error: result.is_error })
        });
        let results: Vec<(Target<'_>, LoggedResult)> = results.collect();
        let Some(mut open) = open else {
            results.iter().for_each(|(target, result)| self.push_late(*target, *result));
            return;
        };
        let before = open.results.len();
        if !open.extend(&results) {
            // With more results others turned out to be the answers of other calls.
            let calls = open.first..self.calls.len();
            let mut answered = vec![None; calls.len()];
            for (answers, result) in open.matched() {
                if let Answers::Call(call) = answers
                    && let Some(answered) = answered.get_mut(call)
                {
                    *answered = Some(result);
                }
            }
            calls.zip(answered).for_each(|(call, result)| self.set_result(call, result));
        }
        for ((answers, result), (target, _)) in open.matched().skip(before).zip(&results) {
            match answers {
                Answers::Call(call) => self.set_result(open.first + call, Some(result)),
                Answers::Nothing => self.push_late(*target, result),
                Answers::Again => {}
            }
        }
        self.open = Some(open);
    }

    /// The calls that were approved or rejected since the model spoke last, and that have no result.
    fn decided_calls(&self) -> Option<Matcher<String>> {
        if self.decided.is_empty() {
            return None;
        }
        let of_requests = self.decided.iter().filter_map(|request| self.by_request.get(request));
        let decided: BTreeSet<usize> = of_requests.flatten().copied().collect();
        let decided = decided.iter().filter_map(|call| self.calls.get(*call));
        let decided = decided.filter(|call| call.result.is_none()).map(|call| call.call.clone());
        Some(Matcher::new(decided.collect(), Ids::MayBeMissing))
    }

    /// What a result says of its call, with the position of the call where the open round would take
    /// it for another: that of a call which was approved or rejected right before it, or of an earlier
    /// call that its id names.
    fn named<'t>(
        &self,
        mut target: Target<'t>,
        open: Option<&mut OpenRound>,
        decided: &mut Option<Matcher<String>>,
        earlier: &mut UnansweredCalls,
    ) -> Target<'t> {
        if target.position.is_some() {
            return target;
        }
        let has_round = open.is_some();
        let is_of_round = open.is_some_and(|open| open.has_id(target.id));
        let is_of_other = is_of_round || self.unanswered.find(target).is_some();
        if let Some(decided) = decided
            && (decided.has_id(target.id) || !is_of_other)
            && let Answers::Call(call) = decided.answer(target)
        {
            target.position = decided.calls().get(call).and_then(|call| call.position);
        } else if has_round
            && !is_of_round
            && let Some(number) = earlier.find(target)
            && let Some(call) = self.calls.get(number.1)
        {
            earlier.remove(number, &call.call);
            target.position = call.call.position;
        }
        target
    }

    /// A result that answers no call of the open round, but may answer one before it.
    fn push_late(&mut self, target: Target<'_>, result: LoggedResult) {
        let Some((round, earlier)) = self.unanswered.find(target) else { return };
        if let Some(call) = self.calls.get(earlier) {
            self.unanswered.remove((round, earlier), &call.call);
        }
        self.set_result(earlier, Some(result));
    }

    /// Those calls of an ended round, which begin at `first`, that have no result.
    fn leave_out(&mut self, first: usize) {
        for (index, call) in self.calls.iter().enumerate().skip(first) {
            if call.result.is_none() {
                self.unanswered.insert((call.round, index), &call.call);
            }
        }
    }

    fn set_result(&mut self, index: usize, result: Option<LoggedResult>) {
        if let Some(call) = self.calls.get_mut(index) {
            call.result = result;
        }
    }
}

/// No message has so many parts that their number does not fit.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
