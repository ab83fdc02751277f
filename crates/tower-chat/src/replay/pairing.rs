//! Which call a result answers: the call that it names by position, else by its id among the calls
//! of its round, else by its place.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use tower_chat_core::{CallPosition, Part, ToolCall, ToolResult};

/// A call that may be answered. `K` is a string: borrowed from the call where it outlives the
/// pairing, owned where it does not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<K> {
    /// Where it is stored; `None` where no result can name it so.
    pub(super) position: Option<CallPosition>,
    /// The id by which it is answered; see [`effective_call_ids`](super::effective_call_ids).
    pub(super) id: K,
    /// The id that it came with, if that is not empty.
    pub(super) given_id: Option<K>,
    /// The name of its tool.
    pub(super) name: K,
    pub(super) is_answered: bool,
    /// It is not a candidate for now, as if it were not among the calls.
    is_hidden: bool,
}

impl<'a> Asked<&'a str> {
    pub(super) fn new(
        call: &'a ToolCall,
        position: Option<CallPosition>,
        id: &'a str,
        is_answered: bool,
    ) -> Self {
        let given_id = call.id.as_deref().filter(|id| !id.is_empty());
        Self { position, id, given_id, name: &call.name, is_answered, is_hidden: false }
    }

    /// The ids by which results may name it.
    pub(super) fn into_ids(self) -> impl Iterator<Item = &'a str> {
        let other = self.given_id.filter(|given| *given != self.id);
        std::iter::once(self.id).chain(other)
    }

    pub(super) fn into_owned(self) -> Asked<String> {
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
pub(super) enum Answers {
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
pub(super) struct Pairing<K> {
    calls: Vec<Asked<K>>,
    index: Option<Box<Index<K>>>,
}

/// The calls of a [`Pairing`] by everything that a result may say of its call.
#[derive(Debug, Clone)]
struct Index<K> {
    /// The first call at each position.
    by_position: HashMap<CallPosition, usize>,
    by_id: HashMap<K, OfId>,
    /// The same calls by place, made for the first result whose id no call has.
    by_index: Option<ByIndex<K>>,
}

/// The calls that results name by one id.
#[derive(Debug, Clone, Default)]
struct OfId {
    /// How many there are, answered or not.
    calls: usize,
    unanswered: BTreeSet<usize>,
}

/// The calls without an answer, for results that name none of them.
#[derive(Debug, Clone)]
struct ByIndex<K> {
    all: OfTools<K>,
    without_id: OfTools<K>,
}

/// Calls in their order, and the same by the name of their tool.
#[derive(Debug, Clone)]
struct OfTools<K> {
    all: BTreeSet<usize>,
    by_name: HashMap<K, BTreeSet<usize>>,
}

impl<K> Default for Pairing<K> {
    fn default() -> Self {
        Self { calls: Vec::new(), index: None }
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> Pairing<K> {
    /// More calls than a round has as a rule.
    const MANY: usize = 16;

    pub(super) fn new(calls: Vec<Asked<K>>) -> Self {
        Self::with_index_beyond(Self::MANY, calls)
    }

    fn with_index_beyond(few: usize, calls: Vec<Asked<K>>) -> Self {
        let index = (calls.len() > few).then(|| Box::new(Index::of(&calls)));
        Self { calls, index }
    }

    /// What a result is to the calls. The call that it answers is answered from now on.
    pub(super) fn answer(&mut self, result: &ToolResult) -> Answers {
        let found = self.find(result);
        if let Answers::Call(call) = found {
            self.set_answered(call, true);
        }
        found
    }

    /// What a result is to the calls. Nothing is answered by it yet.
    pub(super) fn find(&mut self, result: &ToolResult) -> Answers {
        match &mut self.index {
            Some(index) => index.find(&self.calls, result),
            None => find_among(&self.calls, result),
        }
    }

    /// Whether a result names one of the calls by its id.
    pub(super) fn has_named(&self, result: &ToolResult) -> bool {
        let Some(id) = id_of(result) else { return false };
        match &self.index {
            Some(index) => index.of_id(id).is_some(),
            None => self.calls.iter().any(|asked| !asked.is_hidden && asked.has_id(id)),
        }
    }

    pub(super) fn set_answered(&mut self, call: usize, is_answered: bool) {
        self.change(call, |asked| asked.is_answered = is_answered);
    }

    /// Hides a call from the results that come next, as if it were not among the calls.
    pub(super) fn set_hidden(&mut self, call: usize, is_hidden: bool) {
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

    pub(super) fn calls(&self) -> &[Asked<K>] {
        &self.calls
    }

    fn is_answered(&self, call: usize) -> bool {
        self.calls.get(call).is_some_and(|asked| asked.is_answered)
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> Index<K> {
    fn of(calls: &[Asked<K>]) -> Self {
        let mut by_position = HashMap::with_capacity(calls.len());
        for (call, asked) in calls.iter().enumerate() {
            if let Some(position) = asked.position {
                by_position.entry(position).or_insert(call);
            }
        }
        let by_id = HashMap::with_capacity(calls.len());
        let mut index = Self { by_position, by_id, by_index: None };
        for (call, asked) in calls.iter().enumerate() {
            index.insert(call, asked);
        }
        index
    }

    /// The calls of an id, if there are any.
    fn of_id(&self, id: &str) -> Option<&OfId> {
        self.by_id.get(id).filter(|of_id| of_id.calls > 0)
    }

    fn find(&mut self, calls: &[Asked<K>], result: &ToolResult) -> Answers {
        if let Some(named) = result.call {
            let found = self.by_position.get(&named).copied();
            return match found.and_then(|call| Some((call, calls.get(call)?))) {
                None | Some((_, Asked { is_hidden: true, .. })) => Answers::Nothing,
                Some((_, Asked { is_answered: true, .. })) => Answers::Again,
                Some((call, _)) => Answers::Call(call),
            };
        }
        if let Some(of_id) = id_of(result).and_then(|id| self.of_id(id)) {
            let first = of_id.unanswered.first();
            return first.map_or(Answers::Again, |call| Answers::Call(*call));
        }
        let by_index = self.by_index.get_or_insert_with(|| ByIndex::of(calls));
        by_index.first(result).map_or(Answers::Nothing, Answers::Call)
    }

    fn insert(&mut self, call: usize, asked: &Asked<K>) {
        if asked.is_hidden {
            return;
        }
        for id in asked.ids() {
            let of_id = self.by_id.entry(id.clone()).or_default();
            of_id.calls += 1;
            if !asked.is_answered {
                of_id.unanswered.insert(call);
            }
        }
        if let Some(by_index) = &mut self.by_index {
            by_index.insert(call, asked);
        }
    }

    fn remove(&mut self, call: usize, asked: &Asked<K>) {
        if asked.is_hidden {
            return;
        }
        for id in asked.ids() {
            if let Some(of_id) = self.by_id.get_mut(id.borrow()) {
                of_id.calls = of_id.calls.saturating_sub(1);
                of_id.unanswered.remove(&call);
            }
        }
        if let Some(by_index) = &mut self.by_index {
            by_index.all.remove(call, asked);
            by_index.without_id.remove(call, asked);
        }
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> ByIndex<K> {
    fn of(calls: &[Asked<K>]) -> Self {
        let none = OfTools { all: BTreeSet::new(), by_name: HashMap::new() };
        let mut by_index = Self { all: none.clone(), without_id: none };
        for (call, asked) in calls.iter().enumerate() {
            by_index.insert(call, asked);
        }
        by_index
    }

    fn insert(&mut self, call: usize, asked: &Asked<K>) {
        if asked.is_answered || asked.is_hidden {
            return;
        }
        self.all.insert(call, asked);
        if asked.given_id.is_none() {
            self.without_id.insert(call, asked);
        }
    }

    /// The first call that a result whose id no call has may be the answer of, by its place: one of
    /// the two came without an id, and the names do not speak against it.
    fn first(&self, result: &ToolResult) -> Option<usize> {
        let calls = if id_of(result).is_none() { &self.all } else { &self.without_id };
        let of_tool = match result.name.as_deref() {
            Some(name) => calls.by_name.get(name)?,
            None => &calls.all,
        };
        of_tool.first().copied()
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> OfTools<K> {
    fn insert(&mut self, call: usize, asked: &Asked<K>) {
        self.all.insert(call);
        self.by_name.entry(asked.name.clone()).or_default().insert(call);
    }

    fn remove(&mut self, call: usize, asked: &Asked<K>) {
        self.all.remove(&call);
        if let Some(of_tool) = self.by_name.get_mut(asked.name.borrow()) {
            of_tool.remove(&call);
        }
    }
}

impl<K: Borrow<str>> Asked<K> {
    /// The ids by which results may name it: the one by which it is answered, and, as the calls of
    /// one answer may have come with the same id, the one that it came with.
    fn ids(&self) -> impl Iterator<Item = &K> {
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

/// The calls of a round, which begin with those of the answer's first message, and what the results
/// that come one after the other answer.
///
/// Results that name their call by position are taken first. If the others fit the calls of the
/// last message, they answer those: a run that was interrupted before its tools ran, and was then
/// sent again, leaves the calls of the message before without a result. Otherwise they answer the
/// calls of all messages in order.
#[derive(Debug, Clone)]
pub(super) struct RoundPairing<K> {
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
    pub(super) fn of(
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
    pub(super) fn push(&mut self, result: &ToolResult) -> Option<Answers> {
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
    pub(super) fn has_named(&self, result: &ToolResult) -> bool {
        self.all.has_named(result)
    }

    /// Whether the call at this place has its result.
    pub(super) fn is_answered(&self, call: usize) -> bool {
        self.all.is_answered(call)
            || self.of_last.as_ref().is_some_and(|of_last| {
                call.checked_sub(self.last).is_some_and(|call| of_last.is_answered(call))
            })
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> Pairing<K> {
    fn find_position(&self, named: CallPosition) -> Option<usize> {
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
pub(super) fn pending_call(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some(call),
        Part::ApprovalRequest(request) => Some(&request.call),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
