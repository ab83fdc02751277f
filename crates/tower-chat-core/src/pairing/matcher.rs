//! The matcher, which finds the call of each result in a list of calls.

use std::{borrow::Borrow, hash::Hash};

use super::{Answers, Target, given_id, index::Index};
use crate::{CallPosition, ToolCall};

/// A call that a result may answer. `K` is a string type: borrowed if the call outlives the
/// matcher, otherwise owned.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<K> {
    /// The stored position of the call; `None` if results cannot refer to the call by position.
    pub position: Option<CallPosition>,
    /// The id by which results refer to the call; see [`AnswerIds`](super::AnswerIds).
    pub id: K,
    /// The call's own id, if it is not empty.
    pub given_id: Option<K>,
    /// The name of the tool.
    pub tool: K,
    /// Whether the call has its result.
    pub is_answered: bool,
    /// Whether the matcher currently ignores the call.
    pub(super) is_hidden: bool,
}

impl<'a> Candidate<&'a str> {
    /// Creates a call without a result. Results refer to the call by `id`.
    pub fn new(call: &'a ToolCall, position: Option<CallPosition>, id: &'a str) -> Self {
        let (given_id, tool) = (given_id(call), call.name.as_str());
        Self { position, id, given_id, tool, is_answered: false, is_hidden: false }
    }

    /// Sets whether the call has its result.
    #[must_use]
    pub fn answered(self, is_answered: bool) -> Self {
        Self { is_answered, ..self }
    }

    /// Creates a call with only an id, which may be missing or empty.
    pub fn of_id(id: Option<&'a str>) -> Self {
        let given_id = id.filter(|id| !id.is_empty());
        let id = given_id.unwrap_or_default();
        Self { position: None, id, given_id, tool: "", is_answered: false, is_hidden: false }
    }

    /// Converts to owned strings.
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
    /// Iterates over the ids by which results may refer to the call: its assigned id and its own
    /// id. The two ids differ if several calls of the answer have the same own id.
    pub fn ids(&self) -> impl Iterator<Item = &K> {
        let other = self.given_id.as_ref().filter(|given| (*given).borrow() != self.id.borrow());
        std::iter::once(&self.id).chain(other)
    }

    fn has_id(&self, id: &str) -> bool {
        self.ids().any(|own| own.borrow() == id)
    }
}

/// Whether a result may be matched with a call by order if one of the two has no id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ids {
    /// The result is matched by order, because histories may have lost ids.
    #[default]
    MayBeMissing,
    /// A result without an id is matched only with a call without an id, as providers do.
    Required,
}

/// Matches results with calls, one result after the other.
///
/// If the results are in the order of their calls, matching a result costs one comparison.
/// Otherwise the matcher builds an index, and matching a result costs O(log n) in the number of
/// calls.
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
    /// An index in `calls`. Every call before this index is answered or hidden.
    first_open: usize,
    /// Finds calls by position and by id; built when it is first needed.
    index: Option<Box<Index<K>>>,
}

impl<K> Default for Matcher<K> {
    fn default() -> Self {
        Self { calls: Vec::new(), ids: Ids::default(), first_open: 0, index: None }
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> Matcher<K> {
    /// Creates a matcher of these calls.
    pub fn new(calls: Vec<Candidate<K>>, ids: Ids) -> Self {
        Self { calls, ids, ..Self::default() }
    }

    /// Adds a call after the others.
    pub fn push(&mut self, call: Candidate<K>) {
        if let Some(index) = &mut self.index {
            index.push(self.calls.len(), &call);
        }
        self.calls.push(call);
    }

    /// Matches a result, and marks the call as answered.
    pub fn answer<'t>(&mut self, target: impl Into<Target<'t>>) -> Answers {
        let found = self.find(target);
        if let Answers::Call(call) = found {
            self.set_answered(call, true);
        }
        found
    }

    /// Matches a result, without marking the call as answered.
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

    /// Returns whether one of the calls has this id.
    pub fn has_id(&mut self, id: Option<&str>) -> bool {
        let Some(id) = id.filter(|id| !id.is_empty() && !self.calls.is_empty()) else {
            return false;
        };
        let index = self.index.get_or_insert_with(|| Box::new(Index::of(&self.calls)));
        index.has_id(id)
    }

    /// Returns the index of the call at a position.
    pub fn call_at(&mut self, position: CallPosition) -> Option<usize> {
        let index = self.index.get_or_insert_with(|| Box::new(Index::of(&self.calls)));
        index.call_at(position)
    }

    /// Sets whether a call has its result.
    pub fn set_answered(&mut self, call: usize, is_answered: bool) {
        self.change(call, |candidate| candidate.is_answered = is_answered);
    }

    /// Sets whether the matcher ignores a call for the next results.
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

    /// Returns the calls.
    pub fn calls(&self) -> &[Candidate<K>] {
        &self.calls
    }

    /// Returns whether a call has its result.
    pub fn is_answered(&self, call: usize) -> bool {
        self.calls.get(call).is_some_and(|candidate| candidate.is_answered)
    }
}
