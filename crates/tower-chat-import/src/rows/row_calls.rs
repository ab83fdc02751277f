//! An index of the calls of one row, which is used to match results with calls.
//!
//! An *entry* is a message with the results that follow the message. A row becomes one or more
//! entries.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use tower_chat_core::{ToolCall, ToolResult};

use super::{AggregateCall, Entry};

/// Finds the entry of a row in which a result answers a call, without a search of all entries.
#[derive(Default)]
pub(super) struct RowCalls {
    /// For each call id, the entries that contain a call with this id, with or without a result.
    by_id: HashMap<String, BTreeSet<usize>>,
    /// For each call id and entry, the number of calls without a result.
    unanswered_by_id: HashMap<String, BTreeMap<usize, usize>>,
    /// For each result, the entries that contain this result and a call with its id.
    with_result: HashMap<ExactResult, BTreeSet<usize>>,
    /// The calls without a result.
    unanswered: OfTools,
    /// The calls that have neither a result nor an id.
    without_id: OfTools,
    /// A cache for [`first_open`](Self::first_open): for the id and the tool name of a result, a
    /// range of entries in which the result answers no call without an id.
    named: HashMap<(String, Option<String>), Range<usize>>,
    /// The id, the tool name and the arguments of every call.
    asked: HashSet<(Option<String>, String, String)>,
}

/// The number of calls in each entry, in total and for each tool name.
#[derive(Default)]
struct OfTools {
    all: BTreeMap<usize, usize>,
    by_name: HashMap<String, BTreeMap<usize, usize>>,
}

impl RowCalls {
    /// Adds the calls of the entry with this index.
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

    /// Adds a result to an entry.
    pub(super) fn push_result(&mut self, index: usize, result: &ToolResult) {
        let named = given(result).and_then(|id| self.by_id.get(id));
        if named.is_some_and(|named| named.contains(&index)) {
            self.with_result.entry(ExactResult::of(result)).or_default().insert(index);
        }
    }

    /// Removes a call from the calls without a result.
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

    /// Returns whether a step of the row contains an equal call.
    pub(super) fn has_asked(&self, call: &AggregateCall) -> bool {
        let asked = (call.id.clone(), call.name.clone(), call.arguments.clone());
        self.asked.contains(&asked)
    }

    /// Returns the first entry, from the index `own` on, that has a call without a result which
    /// this result answers:
    ///
    /// - a result without an id answers any call of its tool;
    /// - a result with an id answers a call with the same id or, in an entry without such a call, a
    ///   call of its tool without an id.
    pub(super) fn first_open(&mut self, result: &ToolResult, own: usize) -> Option<usize> {
        let tool = result.name.as_deref();
        let Some(id) = given(result) else { return self.unanswered.entries(tool, own).next() };
        let open = self.unanswered_by_id.get(id);
        let by_id = open.and_then(|open| open.range(own..).next()).map(|(index, _)| *index);
        let by_index = match self.by_id.get(id) {
            None => self.without_id.entries(tool, own).next(),
            Some(named) => {
                // Entries in the cached range are not searched again: new entries are added at the
                // end, calls without an id only receive results, and the ids of an entry do not
                // change.
                let known = self.named.entry((id.to_owned(), result.name.clone())).or_default();
                if !(known.start..=known.end).contains(&own) {
                    *known = own..own;
                }
                let (mut found, start) = (None, known.end);
                for index in self.without_id.entries(tool, start) {
                    if !named.contains(&index) {
                        (found, known.end) = (Some(index), index);
                        break;
                    }
                    known.end = index + 1;
                }
                found
            }
        };
        by_index.into_iter().chain(by_id).min()
    }

    /// Returns the first entry, from the index `own` on, that has a call with the result's id.
    pub(super) fn first_named(&self, result: &ToolResult, own: usize) -> Option<usize> {
        self.by_id.get(given(result)?)?.range(own..).next().copied()
    }

    /// Returns the first entry, from `own` on, that has a call with the result's id and an equal
    /// result.
    pub(super) fn first_with_result(&self, result: &ToolResult, own: usize) -> Option<usize> {
        self.with_result.get(&ExactResult::of(result))?.range(own..).next().copied()
    }
}

/// A result as the key of a map. Two keys are equal exactly if the results are equal.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExactResult(String);

impl ExactResult {
    pub(super) fn of(result: &ToolResult) -> Self {
        #[allow(clippy::expect_used, reason = "all map keys are strings")]
        Self(serde_json::to_string(result).expect("a result has a JSON form"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use tower_chat_testkit::Rng;

    use crate::rows::AskedCall;

    /// Computes [`RowCalls::first_open`] without the cache, by searching all entries.
    fn searched(calls: &RowCalls, result: &ToolResult, own: usize) -> Option<usize> {
        let id = given(result);
        let named = id.and_then(|id| calls.by_id.get(id));
        let is_named = |index: &usize| named.is_some_and(|named| named.contains(index));
        let tools = if id.is_none() { &calls.unanswered } else { &calls.without_id };
        let by_index = tools.entries(result.name.as_deref(), own).find(|index| !is_named(index));
        let open = id.and_then(|id| calls.unanswered_by_id.get(id));
        let by_id = open.and_then(|open| open.range(own..).next()).map(|(index, _)| *index);
        by_index.into_iter().chain(by_id).min()
    }

    #[test]
    fn the_indexed_lookup_of_an_open_call_returns_the_same_call_as_a_linear_search() {
        const IDS: [Option<&str>; 3] = [None, Some("one"), Some("two")];
        const TOOLS: [&str; 2] = ["look", "ask"];
        for seed in 0..500 {
            let mut rng = Rng::of(seed, 0);
            let mut calls = RowCalls::default();
            let mut open = Vec::new();
            for index in 0..12 {
                let asked: Vec<_> = (0..rng.below(4))
                    .map(|_| {
                        let mut call = ToolCall::without_id(TOOLS[rng.below(2)], "{}");
                        call.id = IDS[rng.below(3)].map(str::to_owned);
                        AskedCall { call, is_answered: rng.below(4) == 0 }
                    })
                    .collect();
                let waiting = asked.iter().filter(|asked| !asked.is_answered);
                open.extend(waiting.map(|asked| (index, asked.call.clone())));
                calls.push(index, &Entry { calls: asked, ..Entry::default() });
                for _ in 0..6 {
                    let mut result = ToolResult::new("", "found");
                    result.call_id = IDS[rng.below(3)].map(str::to_owned);
                    result.name =
                        [None, Some("look"), Some("ask")][rng.below(3)].map(str::to_owned);
                    let own = rng.below(index + 2);
                    let expected = searched(&calls, &result, own);
                    assert_eq!(calls.first_open(&result, own), expected, "{seed} {index} {own}");
                    if !open.is_empty() && rng.below(3) == 0 {
                        let (index, call) = open.swap_remove(rng.below(open.len()));
                        calls.remove(index, &call);
                    }
                }
            }
        }
    }
}
