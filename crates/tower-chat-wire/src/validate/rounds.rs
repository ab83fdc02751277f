//! Pairs results with calls, round by round.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Citation, report::Report};

/// More calls than a round has as a rule.
const LARGE: usize = 64;

/// What a wire says about calls and results.
#[derive(Debug)]
pub(super) struct RoundRules {
    pub(super) answered: &'static Citation,
    pub(super) answers_call: &'static Citation,
    pub(super) answered_once: &'static Citation,
    pub(super) distinct: &'static Citation,
}

/// The calls that wait for results.
///
/// A call without an id has the id `""`; several of those are answered in their order.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    rules: &'static RoundRules,
    calls: Vec<OpenCall<'a>>,
    waiting: HashMap<&'a str, VecDeque<usize>>,
    known: HashSet<&'a str>,
    unanswered: usize,
}

#[derive(Debug)]
struct OpenCall<'a> {
    message: usize,
    index: usize,
    id: Option<&'a str>,
    answered: bool,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(rules: &'static RoundRules) -> Self {
        Self {
            rules,
            calls: Vec::new(),
            waiting: HashMap::new(),
            known: HashSet::new(),
            unanswered: 0,
        }
    }

    /// The model calls a tool.
    pub(super) fn call(
        &mut self,
        message: usize,
        index: usize,
        id: Option<&'a str>,
        report: &mut Report,
    ) {
        let key = id.unwrap_or_default();
        if !self.known.insert(key) && !key.is_empty() {
            report.call(self.rules.distinct, message, index, id);
        }
        self.waiting.entry(key).or_default().push_back(self.calls.len());
        self.calls.push(OpenCall { message, index, id, answered: false });
        self.unanswered += 1;
    }

    /// A result comes.
    pub(super) fn result(
        &mut self,
        message: usize,
        index: usize,
        id: Option<&'a str>,
        report: &mut Report,
    ) {
        let key = id.unwrap_or_default();
        let call = self.waiting.get_mut(key).and_then(VecDeque::pop_front);
        match call.and_then(|call| self.calls.get_mut(call)) {
            Some(call) => {
                call.answered = true;
                self.unanswered -= 1;
            }
            None if self.known.contains(key) => {
                report.call(self.rules.answered_once, message, index, id);
            }
            None => report.call(self.rules.answers_call, message, index, id),
        }
    }

    /// Whether there are calls in this round, answered or not.
    pub(super) fn is_open(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether a call still waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.unanswered > 0
    }

    /// Something comes that ends the round: what was not answered never will be.
    pub(super) fn close(&mut self, report: &mut Report) {
        for call in self.calls.drain(..).filter(|call| !call.answered) {
            report.call(self.rules.answered, call.message, call.index, call.id);
        }
        self.unanswered = 0;
        // Clearing a map costs its capacity: one large round must not slow down all after it.
        if self.known.capacity() > LARGE {
            *self = Self::new(self.rules);
        } else {
            self.waiting.clear();
            self.known.clear();
        }
    }
}
