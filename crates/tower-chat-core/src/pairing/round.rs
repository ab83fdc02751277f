//! The matcher of a round, which consists of calls in any number of messages, and of the results
//! after them.

use std::{borrow::Borrow, hash::Hash};

use super::{Answers, Candidate, Ids, Matcher, Target};
use crate::CallPosition;

/// Matches the results of a round with the calls of the round.
///
/// Results with the position of their call are matched first. The other results answer the calls of
/// the last message, if all of these results match calls of that message. Otherwise these results
/// answer the calls of all messages, in order.
///
/// The last message has precedence, because a run may be interrupted before its tools run, and then
/// be sent again. The calls of the earlier message then have no results.
#[derive(Debug, Clone)]
pub struct RoundMatcher<K> {
    calls: Vec<Candidate<K>>,
    /// The index of the first call of the last message with calls.
    last: usize,
    targets: Vec<OwnedTarget>,
    answers: Vec<Answers>,
    /// Whether any result so far has no position.
    has_results_without_position: bool,
    all: Matcher<K>,
    /// The calls of the last message, as long as all results without a position match them. While
    /// this is `Some`, these results mark their calls as answered only here, and not in `all`.
    of_last: Option<Matcher<K>>,
    /// For each call, whether a result with its position has answered it.
    is_answered_by_position: Vec<bool>,
}

#[derive(Debug, Clone)]
struct OwnedTarget {
    position: Option<CallPosition>,
    id: Option<Box<str>>,
    tool: Option<Box<str>>,
}

impl<K: Borrow<str> + Clone + Eq + Hash> RoundMatcher<K> {
    /// Creates a matcher of the calls of a round. The calls of the last message with calls begin at
    /// `last`.
    pub fn new(calls: Vec<Candidate<K>>, last: usize) -> Self {
        let mut round = Self {
            calls,
            last,
            targets: Vec::new(),
            answers: Vec::new(),
            has_results_without_position: false,
            all: Matcher::default(),
            of_last: None,
            is_answered_by_position: Vec::new(),
        };
        round.match_anew();
        round
    }

    /// Adds the next results. Returns false if the next results change the matches of earlier ones.
    pub fn extend<'t>(&mut self, results: impl IntoIterator<Item = Target<'t>>) -> bool {
        let mut is_appended = true;
        for target in results {
            let next = is_appended.then(|| self.next(target)).flatten();
            self.has_results_without_position |= target.position.is_none();
            self.targets.push(OwnedTarget::of(target));
            match next {
                Some(answers) => self.answers.push(answers),
                None => is_appended = false,
            }
        }
        if !is_appended {
            self.match_anew();
        }
        is_appended
    }

    /// Returns the match of each result.
    pub fn answers(&self) -> &[Answers] {
        &self.answers
    }

    /// Returns whether one of the calls has this id.
    pub fn has_id(&mut self, id: Option<&str>) -> bool {
        self.all.has_id(id)
    }

    /// Returns whether a call has its result.
    pub fn is_answered(&self, call: usize) -> bool {
        let is_answered_in_last = |last: &Matcher<K>| {
            call.checked_sub(self.last).is_some_and(|call| last.is_answered(call))
        };
        self.all.is_answered(call) || self.of_last.as_ref().is_some_and(is_answered_in_last)
    }

    /// Matches the next result. Returns `None` if the earlier results may now match other calls.
    fn next(&mut self, target: Target<'_>) -> Option<Answers> {
        if let Some(position) = target.position {
            let Some(call) = self.all.call_at(position) else { return Some(Answers::Nothing) };
            if *self.is_answered_by_position.get(call)? {
                return Some(Answers::Again);
            }
            if self.is_answered(call) {
                return None;
            }
            *self.is_answered_by_position.get_mut(call)? = true;
            self.all.set_answered(call, true);
            if let (Some(of_last), Some(call)) = (&mut self.of_last, call.checked_sub(self.last)) {
                of_last.set_answered(call, true);
            }
            return Some(Answers::Call(call));
        }
        if let Some(of_last) = &mut self.of_last {
            if let Some(call) = call_in_last_message(&mut self.all, of_last, target) {
                return Some(Answers::Call(self.last + call));
            }
            if self.has_results_without_position {
                return None;
            }
            self.of_last = None;
        }
        Some(self.all.answer(target))
    }

    fn match_anew(&mut self) {
        let mut all = Matcher::new(self.calls.clone(), Ids::MayBeMissing);
        self.answers = vec![Answers::Nothing; self.targets.len()];
        self.is_answered_by_position = vec![false; self.calls.len()];
        let (by_position, others): (Vec<_>, Vec<_>) = self
            .targets
            .iter()
            .map(OwnedTarget::borrow)
            .zip(&mut self.answers)
            .partition(|(target, _)| target.position.is_some());
        for (target, answers) in by_position {
            *answers = all.answer(target);
            if let Answers::Call(call) = *answers
                && let Some(is_answered) = self.is_answered_by_position.get_mut(call)
            {
                *is_answered = true;
            }
        }
        let of_last = all.calls().get(self.last..).filter(|_| self.last > 0).map(<[_]>::to_vec);
        self.of_last = of_last.map(|calls| Matcher::new(calls, Ids::MayBeMissing));
        if let Some(of_last) = &mut self.of_last {
            let fits =
                |(target, _): &(Target<'_>, _)| call_in_last_message(&mut all, of_last, *target);
            let found: Option<Vec<_>> = others.iter().map(fits).collect();
            if let Some(found) = found {
                for ((_, answers), call) in others.into_iter().zip(found) {
                    *answers = Answers::Call(self.last + call);
                }
                self.all = all;
                return;
            }
        }
        self.of_last = None;
        for (target, answers) in others {
            *answers = all.answer(target);
        }
        self.all = all;
    }
}

/// Returns the call that a result answers, by id or by order, among the calls of the last message.
/// Returns `None` if only a call in an earlier message has the id of the result.
fn call_in_last_message<K: Borrow<str> + Clone + Eq + Hash>(
    all: &mut Matcher<K>,
    of_last: &mut Matcher<K>,
    target: Target<'_>,
) -> Option<usize> {
    if all.has_id(target.id) && !of_last.has_id(target.id) {
        return None;
    }
    match of_last.answer(target) {
        Answers::Call(call) => Some(call),
        Answers::Again | Answers::Nothing => None,
    }
}

impl OwnedTarget {
    fn of(target: Target<'_>) -> Self {
        let Target { position, id, tool } = target;
        Self { position, id: id.map(Into::into), tool: tool.map(Into::into) }
    }

    fn borrow(&self) -> Target<'_> {
        let (id, tool) = (self.id.as_deref(), self.tool.as_deref());
        Target { position: self.position, id, tool }
    }
}
