//! An index of the tool calls that a matcher knows. The matcher searches the index for the call of
//! a result if the results are not in the order of the calls.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use super::{Answers, Candidate, Ids, Target};
use crate::CallPosition;

/// The calls of a [`Matcher`](super::Matcher) by position, by id and in order.
#[derive(Debug, Clone)]
pub(super) struct Index<K> {
    /// The first call at each position.
    by_position: HashMap<CallPosition, usize>,
    by_id: HashMap<K, OfId>,
    /// The calls in order. This part of the index is built for the first result that matches no
    /// call by position or by id.
    in_order: Option<InOrder<K>>,
}

/// The calls that have the same id.
#[derive(Debug, Clone, Default)]
struct OfId {
    /// The number of calls, with or without a result.
    calls: usize,
    unanswered: BTreeSet<usize>,
}

/// The calls without a result.
#[derive(Debug, Clone)]
struct InOrder<K> {
    all: ByTool<K>,
    without_id: ByTool<K>,
}

/// Calls in order, and the same calls grouped by the name of the tool.
#[derive(Debug, Clone)]
struct ByTool<K> {
    all: BTreeSet<usize>,
    by_name: HashMap<K, BTreeSet<usize>>,
}

impl<K: Borrow<str> + Clone + Eq + Hash> Index<K> {
    pub(super) fn of(calls: &[Candidate<K>]) -> Self {
        let by_position = HashMap::new();
        let by_id = HashMap::with_capacity(calls.len());
        let mut index = Self { by_position, by_id, in_order: None };
        for (call, candidate) in calls.iter().enumerate() {
            index.push(call, candidate);
        }
        index
    }

    pub(super) fn push(&mut self, call: usize, candidate: &Candidate<K>) {
        if let Some(position) = candidate.position {
            self.by_position.entry(position).or_insert(call);
        }
        self.insert(call, candidate);
    }

    pub(super) fn has_id(&self, id: &str) -> bool {
        self.of_id(id).is_some()
    }

    pub(super) fn call_at(&self, position: CallPosition) -> Option<usize> {
        self.by_position.get(&position).copied()
    }

    fn of_id(&self, id: &str) -> Option<&OfId> {
        self.by_id.get(id).filter(|of_id| of_id.calls > 0)
    }

    pub(super) fn find(&mut self, calls: &[Candidate<K>], target: Target<'_>, ids: Ids) -> Answers {
        if let Some(position) = target.position {
            let found = self.call_at(position);
            return match found.and_then(|call| Some((call, calls.get(call)?))) {
                None | Some((_, Candidate { is_hidden: true, .. })) => Answers::Nothing,
                Some((_, Candidate { is_answered: true, .. })) => Answers::Again,
                Some((call, _)) => Answers::Call(call),
            };
        }
        if let Some(of_id) = target.id.and_then(|id| self.of_id(id)) {
            let first = of_id.unanswered.first();
            return first.map_or(Answers::Again, |call| Answers::Call(*call));
        }
        if ids == Ids::Required && target.id.is_some() {
            return Answers::Nothing;
        }
        let in_order = self.in_order.get_or_insert_with(|| InOrder::of(calls));
        in_order.first(target, ids).map_or(Answers::Nothing, Answers::Call)
    }

    pub(super) fn insert(&mut self, call: usize, candidate: &Candidate<K>) {
        if candidate.is_hidden {
            return;
        }
        for id in candidate.ids() {
            let of_id = self.by_id.entry(id.clone()).or_default();
            of_id.calls += 1;
            if !candidate.is_answered {
                of_id.unanswered.insert(call);
            }
        }
        if let Some(in_order) = &mut self.in_order {
            in_order.insert(call, candidate);
        }
    }

    pub(super) fn remove(&mut self, call: usize, candidate: &Candidate<K>) {
        if candidate.is_hidden {
            return;
        }
        for id in candidate.ids() {
            if let Some(of_id) = self.by_id.get_mut(id.borrow()) {
                of_id.calls = of_id.calls.saturating_sub(1);
                of_id.unanswered.remove(&call);
            }
        }
        if let Some(in_order) = &mut self.in_order {
            in_order.all.remove(call, candidate);
            in_order.without_id.remove(call, candidate);
        }
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> InOrder<K> {
    fn of(calls: &[Candidate<K>]) -> Self {
        let none = ByTool { all: BTreeSet::new(), by_name: HashMap::new() };
        let mut in_order = Self { all: none.clone(), without_id: none };
        for (call, candidate) in calls.iter().enumerate() {
            in_order.insert(call, candidate);
        }
        in_order
    }

    fn insert(&mut self, call: usize, candidate: &Candidate<K>) {
        if candidate.is_answered || candidate.is_hidden {
            return;
        }
        self.all.insert(call, candidate);
        if candidate.given_id.is_none() {
            self.without_id.insert(call, candidate);
        }
    }

    /// Returns the call that a result answers by order, because no call has the id of the result.
    /// The call or the result must have no id. If the result names a tool, the call must be of this
    /// tool.
    fn first(&self, target: Target<'_>, ids: Ids) -> Option<usize> {
        let may_have_id = target.id.is_none() && ids == Ids::MayBeMissing;
        let calls = if may_have_id { &self.all } else { &self.without_id };
        let of_tool = match target.tool {
            Some(name) => calls.by_name.get(name)?,
            None => &calls.all,
        };
        of_tool.first().copied()
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> ByTool<K> {
    fn insert(&mut self, call: usize, candidate: &Candidate<K>) {
        self.all.insert(call);
        self.by_name.entry(candidate.tool.clone()).or_default().insert(call);
    }

    fn remove(&mut self, call: usize, candidate: &Candidate<K>) {
        self.all.remove(&call);
        if let Some(of_tool) = self.by_name.get_mut(candidate.tool.borrow()) {
            of_tool.remove(&call);
        }
    }
}
