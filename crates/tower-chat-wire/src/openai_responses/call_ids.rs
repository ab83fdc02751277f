//! Assigns call ids that are present, short enough, and unique.

use std::collections::{HashMap, HashSet};

use tower_chat_core::pairing::{Answers, Candidate, Ids, Matcher, Target};

use super::kind::CallKind;

/// The maximum length of a `call_id` in characters. Source: OpenAI API reference, "Create a model
/// response".
const MAX_ID_LENGTH: usize = 64;

/// Assigns the ids with which the calls of an input are written, and finds the call that each
/// result answers. An id depends only on the call itself and on earlier calls.
#[derive(Debug)]
pub(super) struct CallIds<'a> {
    /// The ids that were written for earlier calls.
    used_ids: HashSet<String>,
    /// For each beginning of a new id: the next number to try as the end of the id.
    next_number: HashMap<String, usize>,
    matcher: Matcher<&'a str>,
    /// The calls that were written, in their order.
    calls: Vec<Call>,
}

impl Default for CallIds<'_> {
    fn default() -> Self {
        Self {
            used_ids: HashSet::new(),
            next_number: HashMap::new(),
            matcher: Matcher::new(Vec::new(), Ids::Required),
            calls: Vec::new(),
        }
    }
}

/// A call that was written.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The id with which the call was written.
    pub(super) id: String,
    /// The index of the item of the call in the input.
    pub(super) index: usize,
    pub(super) kind: &'static CallKind,
}

impl<'a> CallIds<'a> {
    /// Returns the id to write for the next call. `own` is its original id, and `index` is the
    /// index of its item in the input.
    pub(super) fn call(
        &mut self,
        own: Option<&'a str>,
        index: usize,
        kind: &'static CallKind,
    ) -> String {
        let id = self.unused_id(own.unwrap_or_default());
        self.used_ids.insert(id.clone());
        self.matcher.push(Candidate::of_id(own));
        self.calls.push(Call { id: id.clone(), index, kind });
        id
    }

    /// Returns the oldest unanswered call that a result with this id answers.
    pub(super) fn result(&mut self, own: Option<&str>) -> Option<Call> {
        match self.matcher.answer(Target::id(own)) {
            Answers::Call(call) => self.calls.get(call).cloned(),
            Answers::Again | Answers::Nothing => None,
        }
    }

    /// Returns the id if it is not empty, not too long, and not the id of an earlier call.
    /// Otherwise returns a new id: the beginning of the id, or `call`, and a number.
    fn unused_id(&mut self, own: &str) -> String {
        let is_fit = !own.is_empty() && own.chars().count() <= MAX_ID_LENGTH;
        if is_fit && !self.used_ids.contains(own) {
            return own.to_owned();
        }
        let start: String = own.chars().take(MAX_ID_LENGTH / 2).collect();
        let start = if start.is_empty() { "call".to_owned() } else { start };
        let number = self.next_number.entry(start.clone()).or_default();
        *number = self.calls.len().max(*number);
        loop {
            let id = format!("{start}_{number}");
            if !self.used_ids.contains(&id) {
                return id;
            }
            *number += 1;
        }
    }
}
