//! Call ids that are present, short enough, and unique.

use std::collections::{HashMap, HashSet};

use tower_chat_core::pairing::{Answers, Candidate, Ids, Matcher, Target};

use super::kind::CallKind;

/// The longest `call_id` of an output: OpenAI API reference, Create a model response, input, Function
/// tool call output.
const LONGEST: usize = 64;

/// The ids with which the calls of a list are written, and the results that answer them.
///
/// An id depends only on earlier calls, so a longer list begins with the same ids.
#[derive(Debug)]
pub(super) struct CallIds<'a> {
    used: HashSet<String>,
    /// The next number to try for the beginning of a new id; all smaller numbers are in use.
    next_number: HashMap<String, usize>,
    matcher: Matcher<&'a str>,
    calls: Vec<Call>,
}

impl Default for CallIds<'_> {
    fn default() -> Self {
        Self {
            used: HashSet::new(),
            next_number: HashMap::new(),
            matcher: Matcher::new(Vec::new(), Ids::Required),
            calls: Vec::new(),
        }
    }
}

/// A call that was written.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The id with which it was written.
    pub(super) id: String,
    /// Its index in the list.
    pub(super) index: usize,
    pub(super) kind: &'static CallKind,
}

impl<'a> CallIds<'a> {
    /// Returns the id for a call whose own id is given.
    pub(super) fn call(
        &mut self,
        own: Option<&'a str>,
        index: usize,
        kind: &'static CallKind,
    ) -> String {
        let id = self.unused(own.unwrap_or_default());
        self.used.insert(id.clone());
        self.matcher.push(Candidate::of_id(own));
        self.calls.push(Call { id: id.clone(), index, kind });
        id
    }

    /// Returns the call that a result with this id answers: the oldest call without a result.
    pub(super) fn result(&mut self, own: Option<&str>) -> Option<Call> {
        match self.matcher.answer(Target::id(own)) {
            Answers::Call(call) => self.calls.get(call).cloned(),
            Answers::Again | Answers::Nothing => None,
        }
    }

    fn unused(&mut self, own: &str) -> String {
        let is_fit = !own.is_empty() && own.chars().count() <= LONGEST;
        if is_fit && !self.used.contains(own) {
            return own.to_owned();
        }
        let start: String = own.chars().take(LONGEST / 2).collect();
        let start = if start.is_empty() { "call".to_owned() } else { start };
        let number = self.next_number.entry(start.clone()).or_default();
        *number = self.calls.len().max(*number);
        loop {
            let id = format!("{start}_{number}");
            if !self.used.contains(&id) {
                return id;
            }
            *number += 1;
        }
    }
}
