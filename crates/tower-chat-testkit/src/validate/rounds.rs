//! Matches results with calls in each round, and reports mismatches. A round consists of the calls
//! of one answer and their results.

use tower_chat_core::pairing::{Answers, Candidate, Ids, Matcher, Target};

use super::{Citation, report::Report};

/// The rules of a wire (JSON format of a provider) that a report cites.
#[derive(Debug)]
pub(super) struct RoundRules {
    pub(super) answered: &'static Citation,
    pub(super) answers_call: &'static Citation,
    pub(super) answered_once: &'static Citation,
    pub(super) distinct: &'static Citation,
}

/// The calls of the current round, and whether each of them has a result.
///
/// Results without an id answer calls without an id, in the order of the calls.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    rules: &'static RoundRules,
    calls: Matcher<&'a str>,
    /// For each call, the index of its message and the index of the call within the message.
    positions: Vec<(usize, usize)>,
    has_calls_without_id: bool,
    /// The number of calls without a result.
    unanswered: usize,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(rules: &'static RoundRules) -> Self {
        Self {
            rules,
            calls: Matcher::new(Vec::new(), Ids::Required),
            positions: Vec::new(),
            has_calls_without_id: false,
            unanswered: 0,
        }
    }

    /// Adds a call, and reports it if another call of the round has the same id.
    pub(super) fn call(
        &mut self,
        message: usize,
        index: usize,
        id: Option<&'a str>,
        report: &mut Report,
    ) {
        if self.calls.has_id(id) {
            report.call(self.rules.distinct, message, index, id);
        }
        let call = Candidate::of_id(id);
        self.has_calls_without_id |= call.given_id.is_none();
        self.calls.push(call);
        self.positions.push((message, index));
        self.unanswered += 1;
    }

    /// Matches a result with its call. Reports a result without a call, or a second result.
    pub(super) fn result(
        &mut self,
        message: usize,
        index: usize,
        id: Option<&'a str>,
        report: &mut Report,
    ) {
        let target = Target::id(id);
        match self.calls.answer(target) {
            Answers::Call(_) => self.unanswered -= 1,
            Answers::Nothing if target.id.is_some() || !self.has_calls_without_id => {
                report.call(self.rules.answers_call, message, index, id);
            }
            Answers::Nothing | Answers::Again => {
                report.call(self.rules.answered_once, message, index, id);
            }
        }
    }

    /// Returns whether the current round has calls. These calls may already have results.
    pub(super) fn is_open(&self) -> bool {
        !self.positions.is_empty()
    }

    /// Returns whether a call of the current round has no result yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.unanswered > 0
    }

    /// Ends the current round, and reports its calls without a result.
    pub(super) fn close(&mut self, report: &mut Report) {
        if self.is_waiting() {
            let calls = self.calls.calls().iter().zip(&self.positions);
            for (call, (message, index)) in calls.filter(|(call, _)| !call.is_answered) {
                report.call(self.rules.answered, *message, *index, call.given_id);
            }
        }
        if self.is_open() {
            *self = Self::new(self.rules);
        }
    }
}
