//! The calls of a round, in however many messages, and the results that come one after the other.

use std::{borrow::Borrow, hash::Hash};

use tower_chat_core::ToolResult;

use super::{Answers, Asked, Pairing};

/// The calls of a round, which begin with those of the answer's first message, and what the results
/// that come one after the other answer.
///
/// Results that name their call by position are taken first. If the others fit the calls of the
/// last message, they answer those: a run that was interrupted before its tools ran, and was then
/// sent again, leaves the calls of the message before without a result. Otherwise they answer the
/// calls of all messages in order.
#[derive(Debug, Clone)]
pub(in crate::replay) struct RoundPairing<K> {
    all: Pairing<K>,
    /// The calls of the last message, as long as all results so far fit them; results by id are
    /// not marked in `all` then.
    of_last: Option<Pairing<K>>,
    /// Where the calls of the last message that asks begin.
    last: usize,
    /// Which calls are answered by results that name them by position.
    is_answered_by_position: Vec<bool>,
    has_results_by_id: bool,
}

impl<K: Borrow<str> + Clone + Eq + Hash> RoundPairing<K> {
    /// The calls with these results, and what each of those is to them.
    pub(in crate::replay) fn of(
        calls: Vec<Asked<K>>,
        last: usize,
        results: &[&ToolResult],
    ) -> (Self, Vec<Answers>) {
        let mut all = Pairing::new(calls);
        let mut paired = vec![Answers::Nothing; results.len()];
        let mut is_answered_by_position = vec![false; all.calls.len()];
        let (by_position, by_id): (Vec<_>, Vec<_>) =
            results.iter().zip(&mut paired).partition(|(result, _)| result.call.is_some());
        for (result, paired) in by_position {
            *paired = all.answer(result);
            if let Answers::Call(call) = *paired
                && let Some(is_answered) = is_answered_by_position.get_mut(call)
            {
                *is_answered = true;
            }
        }
        let has_results_by_id = !by_id.is_empty();
        let of_last = all.calls.get(last..).filter(|_| last > 0).map(<[_]>::to_vec);
        let mut of_last = of_last.map(Pairing::new);
        if let Some(calls) = &mut of_last {
            // One whose id is that of a call before the last message is not taken for another by
            // its place.
            let fits = |(result, _): &(&&ToolResult, _)| match calls.answer(result) {
                _ if all.has_named(result) && !calls.has_named(result) => None,
                Answers::Call(call) => Some(Answers::Call(last + call)),
                Answers::Again | Answers::Nothing => None,
            };
            let found: Option<Vec<_>> = by_id.iter().map(fits).collect();
            if let Some(found) = found {
                by_id.into_iter().zip(found).for_each(|((_, paired), found)| *paired = found);
                let pairing =
                    Self { all, of_last, last, is_answered_by_position, has_results_by_id };
                return (pairing, paired);
            }
        }
        for (result, paired) in by_id {
            *paired = all.answer(result);
        }
        let of_last = None;
        (Self { all, of_last, last, is_answered_by_position, has_results_by_id }, paired)
    }

    /// What the next result is to the calls; `None` if with it those before it may be the answers
    /// of other calls, and all are to be paired [anew](Self::of).
    pub(in crate::replay) fn push(&mut self, result: &ToolResult) -> Option<Answers> {
        if let Some(named) = result.call {
            let found = self.all.find_position(named);
            let Some(call) = found else { return Some(Answers::Nothing) };
            let is_answered = self.is_answered_by_position.get_mut(call)?;
            if *is_answered {
                return Some(Answers::Again);
            }
            if self.is_answered(call) {
                return None;
            }
            if let Some(is_answered) = self.is_answered_by_position.get_mut(call) {
                *is_answered = true;
            }
            self.all.set_answered(call, true);
            if let (Some(of_last), Some(call)) = (&mut self.of_last, call.checked_sub(self.last)) {
                of_last.set_answered(call, true);
            }
            return Some(Answers::Call(call));
        }
        if let Some(of_last) = &mut self.of_last {
            let is_of_before = self.all.has_named(result) && !of_last.has_named(result);
            if !is_of_before && let Answers::Call(call) = of_last.answer(result) {
                self.has_results_by_id = true;
                return Some(Answers::Call(self.last + call));
            }
            if self.has_results_by_id {
                return None;
            }
            self.of_last = None;
        }
        self.has_results_by_id = true;
        Some(self.all.answer(result))
    }

    /// Whether a result names one of the calls by its id.
    pub(in crate::replay) fn has_named(&self, result: &ToolResult) -> bool {
        self.all.has_named(result)
    }

    /// Whether the call at this place has its result.
    pub(in crate::replay) fn is_answered(&self, call: usize) -> bool {
        self.all.is_answered(call)
            || self.of_last.as_ref().is_some_and(|of_last| {
                call.checked_sub(self.last).is_some_and(|call| of_last.is_answered(call))
            })
    }
}
