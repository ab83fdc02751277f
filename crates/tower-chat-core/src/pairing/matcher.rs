//! Calls that results answer one after the other.

use std::{borrow::Borrow, hash::Hash};

use super::{Answers, Target, given_id, index::Index};
use crate::{CallPosition, ToolCall};

/// A call that a result may answer. `K` is a string: borrowed from the call where it outlives the
/// matcher, owned where it does not.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<K> {
    /// Where it is stored; `None` where no result can name it so.
    pub position: Option<CallPosition>,
    /// The id by which it is answered; see [`AnswerIds`](super::AnswerIds).
    pub id: K,
    /// The id that it came with, if that is not empty.
    pub given_id: Option<K>,
    /// The name of its tool.
    pub tool: K,
    /// It has its result.
    pub is_answered: bool,
    /// It is not a candidate for now, as if it were not among the calls.
    pub(super) is_hidden: bool,
}

impl<'a> Candidate<&'a str> {
    /// A call without a result, which is answered by this id.
    pub fn new(call: &'a ToolCall, position: Option<CallPosition>, id: &'a str) -> Self {
        let (given_id, tool) = (given_id(call), call.name.as_str());
        Self { position, id, given_id, tool, is_answered: false, is_hidden: false }
    }

    /// The same call, with its result or without.
    #[must_use]
    pub fn answered(self, is_answered: bool) -> Self {
        Self { is_answered, ..self }
    }

    /// A call of which nothing but its id is known, which may be missing or empty.
    pub fn of_id(id: Option<&'a str>) -> Self {
        let given_id = id.filter(|id| !id.is_empty());
        let id = given_id.unwrap_or_default();
        Self { position: None, id, given_id, tool: "", is_answered: false, is_hidden: false }
    }

    /// The same with strings of its own.
    pub fn into_owned(self) -> Candidate<String> {
        Candidate {
            position: self.position,
            id: self.id.to_owned(),
            given_id: self.given_id.map(str::to_owned),
            tool: self.tool.to_owned(),
            is_answered: self.is_answered,
            is_hidden: self.is_hidden,
        }
    }
}

impl<K: Borrow<str>> Candidate<K> {
    /// The ids by which results may name it: the one by which it is answered, and, as the calls of
    /// one answer may have come with the same id, the one that it came with.
    pub fn ids(&self) -> impl Iterator<Item = &K> {
        let other = self.given_id.as_ref().filter(|given| (*given).borrow() != self.id.borrow());
        std::iter::once(&self.id).chain(other)
    }

    fn has_id(&self, id: &str) -> bool {
        self.ids().any(|own| own.borrow() == id)
    }
}

/// Whether a result may answer a call by its order, where one of the two has no id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ids {
    /// Yes: histories have lost ids.
    #[default]
    MayBeMissing,
    /// No, as providers have it: a result without an id answers a call without one.
    Required,
}

/// Calls that results answer one after the other.
///
/// Results in the order of their calls cost nothing but a comparison. For others there is an index, so
/// that a result costs the logarithm of the number of calls, whatever ids calls and results have.
///
/// ```
/// use tower_chat_core::pairing::{Answers, Candidate, Ids, Matcher, Target};
/// let mut calls = Matcher::new([Some("c1"), None].map(Candidate::of_id).into(), Ids::MayBeMissing);
/// assert_eq!(calls.answer(Target::id(Some("c2"))), Answers::Call(1));
/// assert_eq!(calls.answer(Target::id(Some("c1"))), Answers::Call(0));
/// assert_eq!(calls.answer(Target::id(Some("c1"))), Answers::Again);
/// ```
#[derive(Debug, Clone)]
pub struct Matcher<K> {
    calls: Vec<Candidate<K>>,
    ids: Ids,
    /// Every call before this one is answered or hidden.
    first_open: usize,
    /// Made for the first result that does not answer the first open call by its id.
    index: Option<Box<Index<K>>>,
}

impl<K> Default for Matcher<K> {
    fn default() -> Self {
        Self { calls: Vec::new(), ids: Ids::default(), first_open: 0, index: None }
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> Matcher<K> {
    /// These calls.
    pub fn new(calls: Vec<Candidate<K>>, ids: Ids) -> Self {
        Self { calls, ids, ..Self::default() }
    }

    /// Adds a call behind the others.
    pub fn push(&mut self, call: Candidate<K>) {
        if let Some(index) = &mut self.index {
            index.push(self.calls.len(), &call);
        }
        self.calls.push(call);
    }

    /// What a result is to the calls. The call that it answers is answered from now on.
    pub fn answer<'t>(&mut self, target: impl Into<Target<'t>>) -> Answers {
        let found = self.find(target);
        if let Answers::Call(call) = found {
            self.set_answered(call, true);
        }
        found
    }

    /// What a result is to the calls. Nothing is answered by it yet.
    pub fn find<'t>(&mut self, target: impl Into<Target<'t>>) -> Answers {
        let target = target.into();
        while self.calls.get(self.first_open).is_some_and(|it| it.is_answered || it.is_hidden) {
            self.first_open += 1;
        }
        let next = self.calls.get(self.first_open).filter(|_| target.position.is_none());
        if next.zip(target.id).is_some_and(|(next, id)| next.has_id(id)) {
            return Answers::Call(self.first_open);
        }
        let index = self.index.get_or_insert_with(|| Box::new(Index::of(&self.calls)));
        index.find(&self.calls, target, self.ids)
    }

    /// Whether one of the calls has this id.
    pub fn has_id(&mut self, id: Option<&str>) -> bool {
        let Some(id) = id.filter(|id| !id.is_empty() && !self.calls.is_empty()) else {
            return false;
        };
        let index = self.index.get_or_insert_with(|| Box::new(Index::of(&self.calls)));
        index.has_id(id)
    }

    /// The call at a position.
    pub fn call_at(&mut self, position: CallPosition) -> Option<usize> {
        let index = self.index.get_or_insert_with(|| Box::new(Index::of(&self.calls)));
        index.call_at(position)
    }

    /// Notes that a call has its result, or that it has none.
    pub fn set_answered(&mut self, call: usize, is_answered: bool) {
        self.change(call, |candidate| candidate.is_answered = is_answered);
    }

    /// Hides a call from the results that come next, as if it were not among the calls.
    pub fn set_hidden(&mut self, call: usize, is_hidden: bool) {
        self.change(call, |candidate| candidate.is_hidden = is_hidden);
    }

    fn change(&mut self, call: usize, change: impl FnOnce(&mut Candidate<K>)) {
        let Some(candidate) = self.calls.get_mut(call) else { return };
        if let Some(index) = &mut self.index {
            index.remove(call, candidate);
            change(candidate);
            index.insert(call, candidate);
        } else {
            change(candidate);
        }
        self.first_open = self.first_open.min(call);
    }

    /// The calls.
    pub fn calls(&self) -> &[Candidate<K>] {
        &self.calls
    }

    /// Whether a call has its result.
    pub fn is_answered(&self, call: usize) -> bool {
        self.calls.get(call).is_some_and(|candidate| candidate.is_answered)
    }
}
