//! The calls of one row, by what results may say of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tower_chat_core::{ToolCall, ToolResult};

use super::{AggregateCall, Entry};

/// The entries of a row whose calls a result may answer, so that not all of them have to be looked
/// through for each result.
#[derive(Default)]
pub(super) struct RowCalls {
    /// By the id of a call, answered or not.
    by_id: HashMap<String, BTreeSet<usize>>,
    /// Calls without an answer, by their ids.
    unanswered_by_id: HashMap<String, BTreeMap<usize, usize>>,
    /// By the id and the text of a result.
    with_result: HashMap<(Option<String>, String), BTreeSet<usize>>,
    /// Calls without an answer, for results without an id.
    unanswered: OfTools,
    /// The same, but for those that have an id.
    without_id: OfTools,
    /// What was asked for: ids, names and arguments.
    asked: HashSet<(Option<String>, String, String)>,
}

/// How many calls each entry has, and the same by the name of their tool.
#[derive(Default)]
struct OfTools {
    all: BTreeMap<usize, usize>,
    by_name: HashMap<String, BTreeMap<usize, usize>>,
}

impl RowCalls {
    pub(super) fn push(&mut self, index: usize, entry: &Entry) {
        for asked in &entry.calls {
            let call = &asked.call;
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            self.asked.insert((call.id.clone(), name, arguments));
            if let Some(id) = given_id(call) {
                self.by_id.entry(id.to_owned()).or_default().insert(index);
            }
            if asked.is_answered {
                continue;
            }
            self.unanswered.insert(index, &call.name);
            match given_id(call) {
                Some(id) => {
                    let of_id = self.unanswered_by_id.entry(id.to_owned()).or_default();
                    *of_id.entry(index).or_default() += 1;
                }
                None => self.without_id.insert(index, &call.name),
            }
        }
    }

    /// An entry has got a result.
    pub(super) fn push_result(&mut self, index: usize, result: &ToolResult) {
        let with_result = (result.call_id.clone(), result.text());
        self.with_result.entry(with_result).or_default().insert(index);
    }

    /// A call of an entry has its answer.
    pub(super) fn remove(&mut self, index: usize, call: &ToolCall) {
        self.unanswered.remove(index, &call.name);
        match given_id(call) {
            Some(id) => {
                if let Some(of_id) = self.unanswered_by_id.get_mut(id) {
                    take_one(of_id, index);
                }
            }
            None => self.without_id.remove(index, &call.name),
        }
    }

    /// Whether a step of the row asked for the call already.
    pub(super) fn has_asked(&self, call: &AggregateCall) -> bool {
        let asked = (call.id.clone(), call.name.clone(), call.arguments.clone());
        self.asked.contains(&asked)
    }

    /// Of the entries from `own` on, the first with a call without an answer that a result answers:
    /// one that it names by its id, or, where it names none of the entry, one by its place.
    pub(super) fn first_open(&self, result: &ToolResult, own: usize) -> Option<usize> {
        let id = given(result);
        let named = id.and_then(|id| self.by_id.get(id));
        let is_named = |index: &usize| named.is_some_and(|named| named.contains(index));
        let calls = if id.is_none() { &self.unanswered } else { &self.without_id };
        let by_place = calls.entries(result.name.as_deref(), own).find(|index| !is_named(index));
        let open = id.and_then(|id| self.unanswered_by_id.get(id));
        let by_id = open.and_then(|open| open.range(own..).next()).map(|(index, _)| *index);
        by_place.into_iter().chain(by_id).min()
    }

    /// Of the entries from `own` on, the first with a call that a result names by its id.
    pub(super) fn first_named(&self, result: &ToolResult, own: usize) -> Option<usize> {
        self.by_id.get(given(result)?)?.range(own..).next().copied()
    }

    /// Of the entries from `own` on, those with a call that a result names by its id, and with a
    /// result that has the same id and text.
    pub(super) fn with_result(
        &self,
        result: &ToolResult,
        own: usize,
    ) -> impl Iterator<Item = usize> {
        let named = given(result).and_then(|id| self.by_id.get(id));
        let held = self.with_result.get(&(result.call_id.clone(), result.text()));
        let held = held.into_iter().flat_map(move |held| held.range(own..)).copied();
        held.filter(move |index| named.is_some_and(|named| named.contains(index)))
    }
}

impl OfTools {
    fn insert(&mut self, index: usize, name: &str) {
        *self.all.entry(index).or_default() += 1;
        *self.by_name.entry(name.to_owned()).or_default().entry(index).or_default() += 1;
    }

    fn remove(&mut self, index: usize, name: &str) {
        take_one(&mut self.all, index);
        if let Some(of_tool) = self.by_name.get_mut(name) {
            take_one(of_tool, index);
        }
    }

    fn entries(&self, name: Option<&str>, own: usize) -> impl Iterator<Item = usize> {
        let calls = match name {
            Some(name) => self.by_name.get(name),
            None => Some(&self.all),
        };
        calls.into_iter().flat_map(move |calls| calls.range(own..)).map(|(index, _)| *index)
    }
}

fn take_one(counts: &mut BTreeMap<usize, usize>, index: usize) {
    if let Some(count) = counts.get_mut(&index) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&index);
        }
    }
}

fn given(result: &ToolResult) -> Option<&str> {
    result.call_id.as_deref().filter(|id| !id.is_empty())
}

fn given_id(call: &ToolCall) -> Option<&str> {
    call.id.as_deref().filter(|id| !id.is_empty())
}
