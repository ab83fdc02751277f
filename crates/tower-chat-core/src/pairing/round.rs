//! The calls of a round, in however many messages, and the results that follow them.

use std::{borrow::Borrow, hash::Hash};

use super::{Answers, Candidate, Ids, Matcher, Target};
use crate::CallPosition;

/// The calls of a round, which begin with those of the answer's first message, and what the results
/// that follow one after the other answer.
///
/// Results that name their call by position are taken first. If the others fit the calls of the
/// last message, they answer those: a run that was interrupted before its tools ran, and was then
/// sent again, leaves the calls of the message before without a result. Otherwise they answer the
/// calls of all messages in order.
#[derive(Debug, Clone)]
pub struct RoundMatcher<K> {
    calls: Vec<Candidate<K>>,
    /// Where the calls of the last message that asks begin.
    last: usize,
    targets: Vec<OwnedTarget>,
    answers: Vec<Answers>,
    /// Some of the results do not name their call by position.
    has_others: bool,
    all: Matcher<K>,
    /// The calls of the last message, as long as all results so far fit them; results by id are
    /// not marked in `all` then.
    of_last: Option<Matcher<K>>,
    /// Which calls are answered by results that name them by position.
    is_answered_by_position: Vec<bool>,
}

/// A [`Target`] with strings of its own.
#[derive(Debug, Clone)]
struct OwnedTarget {
    position: Option<CallPosition>,
    id: Option<Box<str>>,
    tool: Option<Box<str>>,
}

impl<K: Borrow<str> + Clone + Eq + Hash> RoundMatcher<K> {
    /// The calls of a round, of which those of the last message that asks begin at `last`.
    pub fn new(calls: Vec<Candidate<K>>, last: usize) -> Self {
        let mut round = Self {
            calls,
            last,
            targets: Vec::new(),
            answers: Vec::new(),
            has_others: false,
            all: Matcher::default(),
            of_last: None,
            is_answered_by_position: Vec::new(),
        };
        round.match_anew();
        round
    }

    /// Takes the next results. `false` if with them results before are the answers of other calls.
    pub fn extend<'t>(&mut self, results: impl IntoIterator<Item = Target<'t>>) -> bool {
        let mut is_appended = true;
        for target in results {
            let next = is_appended.then(|| self.next(target)).flatten();
            self.has_others |= target.position.is_none();
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

    /// What each of the results is to the calls.
    pub fn answers(&self) -> &[Answers] {
        &self.answers
    }

    /// Whether one of the calls has this id.
    pub fn has_id(&mut self, id: Option<&str>) -> bool {
        self.all.has_id(id)
    }

    /// Whether a call has its result.
    pub fn is_answered(&self, call: usize) -> bool {
        let is_answered_in_last = |last: &Matcher<K>| {
            call.checked_sub(self.last).is_some_and(|call| last.is_answered(call))
        };
        self.all.is_answered(call) || self.of_last.as_ref().is_some_and(is_answered_in_last)
    }

    /// What the next result is to the calls; `None` if with it those before may be the answers of
    /// other calls.
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
            if let Some(call) = fitting(&mut self.all, of_last, target) {
                return Some(Answers::Call(self.last + call));
            }
            if self.has_others {
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
            let fits = |(target, _): &(Target<'_>, _)| fitting(&mut all, of_last, *target);
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

/// The call of the last message that a result answers. A result whose id is that of a call before
/// the last message answers no other by its order.
fn fitting<K: Borrow<str> + Clone + Eq + Hash>(
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
