//! The log of calls: the calls of consecutive messages, and their results. A round consists of the
//! calls of one answer and their results. The last round is open, because more results may follow.

use std::collections::{BTreeSet, HashMap};

use super::{
    AnswerKey, Answers, Candidate, IdBase, Ids, Matcher, Piece, Target, UnansweredCalls,
    asked_call, open_round::OpenRound, pieces,
};
use crate::{Message, Part, Role};

/// The calls of consecutive messages, and their results.
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
    /// The calls of earlier rounds that have no result.
    unanswered: UnansweredCalls,
    /// The indices of the calls, by the id of their approval request.
    by_request: HashMap<String, Vec<usize>>,
    open: Option<OpenRound>,
    /// The approval requests that were answered since the last message of the model.
    decided: Vec<String>,
}

/// A call of the model.
#[derive(Debug, Clone)]
pub struct LoggedCall {
    /// The position of the call, its tool, and the ids by which results refer to the call.
    pub call: Candidate<String>,
    /// The number of the message that contains the call.
    pub message: u64,
    /// The index of the call among the [asked calls](Message::asked_calls) of its message.
    pub index: u32,
    /// The index, among all calls, of the first call of this call's round.
    pub round: usize,
    /// Whether the call waits, or waited, for approval.
    pub needs_approval: bool,
    /// Whether the call was approved; `None` before the decision.
    pub is_approved: Option<bool>,
    /// The result of the call.
    pub result: Option<LoggedResult>,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedResult {
    /// The position of the result.
    pub position: ResultPosition,
    /// Whether the result reports that the tool failed.
    pub is_error: bool,
}

/// The position of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResultPosition {
    /// The number of the message that contains the result.
    pub message: u64,
    /// The index of the result among the results of its message.
    pub index: u32,
}

impl CallLog {
    /// Creates the log of these messages, which are numbered from 0.
    pub fn of<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Self {
        let mut log = Self::default();
        (0..).zip(messages).for_each(|(number, message)| log.push(number, message));
        log
    }

    /// Adds the next message. The number must be greater than the number of every earlier message.
    pub fn push(&mut self, number: u64, message: &Message) {
        let pieces = pieces(message);
        let is_whole = pieces.len() == 1;
        if message.parts.is_empty() && message.role == Role::Assistant {
            // The message has no content, because the content was not to be stored, or because the
            // message only marks the end of its run.
            return;
        }
        for Piece { role, parts } in pieces {
            let before = message.parts.get(..parts.start).unwrap_or_default();
            let key = match is_whole {
                true => AnswerKey::of(message),
                false => (role == Role::Assistant)
                    .then(|| AnswerKey::of_piece(message, parts.start == 0)),
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

    /// Returns all calls so far, in order.
    pub fn calls(&self) -> &[LoggedCall] {
        &self.calls
    }

    /// Adds a message of the model, or an input. Such a message ends the open round, unless it
    /// belongs to the answer of the round.
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
            self.end_round(ended.first);
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
            let target =
                self.resolve_position(result.into(), open.as_mut(), &mut decided, &mut earlier);
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
            // The new results change the matches of earlier results.
            let calls = open.first..self.calls.len();
            let mut answered = vec![None; calls.len()];
            for (answers, result) in open.matched_from(0) {
                if let Answers::Call(call) = answers
                    && let Some(answered) = answered.get_mut(call)
                {
                    *answered = Some(result);
                }
            }
            calls.zip(answered).for_each(|(call, result)| self.set_result(call, result));
        }
        for ((answers, result), (target, _)) in open.matched_from(before).zip(&results) {
            match answers {
                Answers::Call(call) => self.set_result(open.first + call, Some(result)),
                Answers::Nothing => self.push_late(*target, result),
                Answers::Again => {}
            }
        }
        self.open = Some(open);
    }

    /// Returns the calls without a result that were approved or rejected since the last message of
    /// the model.
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

    /// Sets the position in a target if its result answers one of these calls, because a match by
    /// id within the open round would not find them:
    ///
    /// - a call that was approved or rejected directly before the result;
    /// - a call of an earlier round with the id of the result.
    ///
    /// Otherwise returns the target unchanged.
    fn resolve_position<'t>(
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

    /// Adds a late result: a result that answers no call of the open round, but perhaps a call of
    /// an earlier round.
    fn push_late(&mut self, target: Target<'_>, result: LoggedResult) {
        let Some((round, earlier)) = self.unanswered.find(target) else { return };
        if let Some(call) = self.calls.get(earlier) {
            self.unanswered.remove((round, earlier), &call.call);
        }
        self.set_result(earlier, Some(result));
    }

    /// Ends the round that begins at `first`: adds its calls without a result to the unanswered
    /// calls.
    fn end_round(&mut self, first: usize) {
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

/// Converts an index. No message has more than `u32::MAX` parts.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
