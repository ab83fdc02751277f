//! The calls of a pairing by everything that a result may say of its call.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use tower_chat_core::{CallPosition, ToolResult};

use super::{Answers, Asked, id_of};

/// The calls of a [`Pairing`] by everything that a result may say of its call.
#[derive(Debug, Clone)]
pub(super) struct Index<K> {
    /// The first call at each position.
    pub(super) by_position: HashMap<CallPosition, usize>,
    by_id: HashMap<K, OfId>,
    /// The same calls by place, made for the first result whose id no call has.
    by_index: Option<ByIndex<K>>,
}

/// The calls that results name by one id.
#[derive(Debug, Clone, Default)]
pub(super) struct OfId {
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

impl<K: Borrow<str> + Clone + Eq + Hash> Index<K> {
    pub(super) fn of(calls: &[Asked<K>]) -> Self {
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
    pub(super) fn of_id(&self, id: &str) -> Option<&OfId> {
        self.by_id.get(id).filter(|of_id| of_id.calls > 0)
    }

    pub(super) fn find(&mut self, calls: &[Asked<K>], result: &ToolResult) -> Answers {
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

    pub(super) fn insert(&mut self, call: usize, asked: &Asked<K>) {
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

    pub(super) fn remove(&mut self, call: usize, asked: &Asked<K>) {
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
    pub(super) fn of(calls: &[Asked<K>]) -> Self {
        let none = OfTools { all: BTreeSet::new(), by_name: HashMap::new() };
        let mut by_index = Self { all: none.clone(), without_id: none };
        for (call, asked) in calls.iter().enumerate() {
            by_index.insert(call, asked);
        }
        by_index
    }

    pub(super) fn insert(&mut self, call: usize, asked: &Asked<K>) {
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
    pub(super) fn first(&self, result: &ToolResult) -> Option<usize> {
        let calls = if id_of(result).is_none() { &self.all } else { &self.without_id };
        let of_tool = match result.name.as_deref() {
            Some(name) => calls.by_name.get(name)?,
            None => &calls.all,
        };
        of_tool.first().copied()
    }
}

impl<K: Borrow<str> + Clone + Eq + Hash> OfTools<K> {
    pub(super) fn insert(&mut self, call: usize, asked: &Asked<K>) {
        self.all.insert(call);
        self.by_name.entry(asked.name.clone()).or_default().insert(call);
    }

    pub(super) fn remove(&mut self, call: usize, asked: &Asked<K>) {
        self.all.remove(&call);
        if let Some(of_tool) = self.by_name.get_mut(asked.name.borrow()) {
            of_tool.remove(&call);
        }
    }
}
