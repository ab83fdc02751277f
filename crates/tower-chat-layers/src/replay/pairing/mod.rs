//! Which call a result answers: the call that it names by position, else by its id among the calls
//! of its round, else by its place.

mod index;
mod round;

use std::{borrow::Borrow, hash::Hash};

use tower_chat_core::{CallPosition, Part, ToolCall, ToolResult};

use self::index::Index;
pub(in crate::replay) use self::round::RoundPairing;

/// A call that may be answered. `K` is a string: borrowed from the call where it outlives the
/// pairing, owned where it does not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<K> {
    /// Where it is stored; `None` where no result can name it so.
    pub(crate) position: Option<CallPosition>,
    /// The id by which it is answered; see [`effective_call_ids`](super::effective_call_ids).
    pub(crate) id: K,
    /// The id that it came with, if that is not empty.
    pub(crate) given_id: Option<K>,
    /// The name of its tool.
    pub(crate) name: K,
    pub(crate) is_answered: bool,
    /// It is not a candidate for now, as if it were not among the calls.
    is_hidden: bool,
}

impl<'a> Asked<&'a str> {
    pub(crate) fn new(
        call: &'a ToolCall,
        position: Option<CallPosition>,
        id: &'a str,
        is_answered: bool,
    ) -> Self {
        let given_id = call.id.as_deref().filter(|id| !id.is_empty());
        Self { position, id, given_id, name: &call.name, is_answered, is_hidden: false }
    }

    /// The ids by which results may name it.
    pub(crate) fn into_ids(self) -> impl Iterator<Item = &'a str> {
        let other = self.given_id.filter(|given| *given != self.id);
        std::iter::once(self.id).chain(other)
    }

    pub(crate) fn into_owned(self) -> Asked<String> {
        Asked {
            position: self.position,
            id: self.id.to_owned(),
            given_id: self.given_id.map(str::to_owned),
            name: self.name.to_owned(),
            is_answered: self.is_answered,
            is_hidden: self.is_hidden,
        }
    }
}

/// What a result is to the calls of its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The answer of the call at this place.
    Call(usize),
    /// One more answer of a call that has one; it says nothing new.
    Again,
    /// The answer of none of them.
    Nothing,
}

/// Calls that results answer one after the other.
///
/// A few calls are looked through for each result. More have an index, so that a result costs the
/// logarithm of the number of calls, whatever ids calls and results have.
#[derive(Debug, Clone)]
pub(crate) struct Pairing<K> {
    calls: Vec<Asked<K>>,
    index: Option<Box<Index<K>>>,
}

impl<K> Default for Pairing<K> {
    fn default() -> Self {
        Self { calls: Vec::new(), index: None }
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> Pairing<K> {
    /// More calls than a round has as a rule.
    const MANY: usize = 16;

    pub(crate) fn new(calls: Vec<Asked<K>>) -> Self {
        Self::with_index_beyond(Self::MANY, calls)
    }

    fn with_index_beyond(few: usize, calls: Vec<Asked<K>>) -> Self {
        let index = (calls.len() > few).then(|| Box::new(Index::of(&calls)));
        Self { calls, index }
    }

    /// What a result is to the calls. The call that it answers is answered from now on.
    pub(crate) fn answer(&mut self, result: &ToolResult) -> Answers {
        let found = self.find(result);
        if let Answers::Call(call) = found {
            self.set_answered(call, true);
        }
        found
    }

    /// What a result is to the calls. Nothing is answered by it yet.
    pub(crate) fn find(&mut self, result: &ToolResult) -> Answers {
        match &mut self.index {
            Some(index) => index.find(&self.calls, result),
            None => find_among(&self.calls, result),
        }
    }

    /// Whether a result names one of the calls by its id.
    pub(crate) fn has_named(&self, result: &ToolResult) -> bool {
        let Some(id) = id_of(result) else { return false };
        match &self.index {
            Some(index) => index.of_id(id).is_some(),
            None => self.calls.iter().any(|asked| !asked.is_hidden && asked.has_id(id)),
        }
    }

    pub(crate) fn set_answered(&mut self, call: usize, is_answered: bool) {
        self.change(call, |asked| asked.is_answered = is_answered);
    }

    /// Hides a call from the results that come next, as if it were not among the calls.
    pub(crate) fn set_hidden(&mut self, call: usize, is_hidden: bool) {
        self.change(call, |asked| asked.is_hidden = is_hidden);
    }

    fn change(&mut self, call: usize, change: impl FnOnce(&mut Asked<K>)) {
        let Some(asked) = self.calls.get_mut(call) else { return };
        if let Some(index) = &mut self.index {
            index.remove(call, asked);
            change(asked);
            index.insert(call, asked);
        } else {
            change(asked);
        }
    }

    pub(crate) fn calls(&self) -> &[Asked<K>] {
        &self.calls
    }

    pub(super) fn is_answered(&self, call: usize) -> bool {
        self.calls.get(call).is_some_and(|asked| asked.is_answered)
    }
}

impl<K: Borrow<str>> Asked<K> {
    /// The ids by which results may name it: the one by which it is answered, and, as the calls of
    /// one answer may have come with the same id, the one that it came with.
    pub(super) fn ids(&self) -> impl Iterator<Item = &K> {
        let other = self.given_id.as_ref().filter(|given| (*given).borrow() != self.id.borrow());
        std::iter::once(&self.id).chain(other)
    }

    fn has_id(&self, id: &str) -> bool {
        self.ids().any(|own| own.borrow() == id)
    }

    fn may_be_answered_by_place(&self, result: &ToolResult) -> bool {
        let names_agree = result.name.as_deref().is_none_or(|name| name == self.name.borrow());
        (self.given_id.is_none() || id_of(result).is_none()) && names_agree
    }
}

/// What a result is to a few calls.
fn find_among<K: Borrow<str>>(calls: &[Asked<K>], result: &ToolResult) -> Answers {
    let calls = || calls.iter().enumerate().filter(|(_, asked)| !asked.is_hidden);
    if let Some(named) = result.call {
        let found = calls().find(|(_, asked)| asked.position == Some(named));
        return match found {
            Some((_, Asked { is_answered: true, .. })) => Answers::Again,
            Some((call, _)) => Answers::Call(call),
            None => Answers::Nothing,
        };
    }
    let is_named = |asked: &Asked<K>| id_of(result).is_some_and(|id| asked.has_id(id));
    let is_known = calls().any(|(_, asked)| is_named(asked));
    let free = calls().find(|(_, asked)| {
        !asked.is_answered
            && if is_known { is_named(asked) } else { asked.may_be_answered_by_place(result) }
    });
    match free {
        Some((call, _)) => Answers::Call(call),
        None if is_known => Answers::Again,
        None => Answers::Nothing,
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> Pairing<K> {
    pub(super) fn find_position(&self, named: CallPosition) -> Option<usize> {
        match &self.index {
            Some(index) => index.by_position.get(&named).copied(),
            None => self.calls.iter().position(|asked| asked.position == Some(named)),
        }
    }
}

/// The id by which a result names its call.
fn id_of(result: &ToolResult) -> Option<&str> {
    result.call_id.as_deref().filter(|id| !id.is_empty())
}

/// The call of a part that owes, or will owe, a result.
pub(crate) fn pending_call(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some(call),
        Part::ApprovalRequest(request) => Some(&request.call),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
