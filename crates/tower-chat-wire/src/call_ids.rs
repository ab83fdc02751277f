//! Call ids in the form that the services of Anthropic, Bedrock and Cohere accept.

use std::collections::{HashMap, HashSet};

use tower_chat_core::{
    Role,
    pairing::{Answers, Candidate, Matcher, Target},
};

/// Assigns the call ids of one round. A round consists of consecutive messages of the assistant and the
/// results of their calls.
///
/// Anthropic and Bedrock require ids of ASCII letters, digits, `_` and `-`, each once in a round. An id
/// in this form is not changed. A new id depends only on the round, so a round is always written in the
/// same way, regardless of the messages before it.
#[derive(Debug, Default)]
pub(crate) struct Round {
    calls: Matcher<String>,
    /// The ids that were written for the calls, in the order of the calls.
    written: Vec<String>,
    /// The written ids, which no later call of the round may have.
    taken: HashSet<String>,
    /// The next number to try for an id that occurs again; all smaller numbers are in use.
    next_number: HashMap<String, usize>,
    /// Whether ids may have any character.
    takes_any: bool,
    /// Whether a call was written with another id than it has.
    has_renamed: bool,
    /// Whether a message of another role follows the messages of the assistant.
    is_answered: bool,
}

impl Round {
    /// Creates a round for a service that accepts ids of any characters.
    pub(crate) fn of_any_ids() -> Self {
        Self { takes_any: true, ..Self::default() }
    }

    /// Returns whether a call was written with another id than it has.
    pub(crate) fn has_renamed(&self) -> bool {
        self.has_renamed
    }

    /// Begins the next message, which has this role. `asks` is whether it has calls. A message of the
    /// assistant with calls begins a new round if a message of another role precedes it.
    pub(crate) fn follow(&mut self, role: Role, asks: bool) {
        if role != Role::Assistant {
            self.is_answered = true;
        } else if asks && self.is_answered {
            *self = Self { takes_any: self.takes_any, ..Self::default() };
        }
    }

    /// Returns the id to write for the next call.
    pub(crate) fn call(&mut self, id: Option<&str>) -> String {
        let original = id.unwrap_or_default();
        let wanted = if original.is_empty() {
            format!("call_{}", self.written.len())
        } else {
            self.acceptable(original)
        };
        let written = self.free(wanted);
        self.has_renamed |= written != original;
        self.taken.insert(written.clone());
        self.written.push(written.clone());
        self.calls.push(Candidate::of_id(id).into_owned());
        written
    }

    /// Returns the id to write for the next result: the id of its call. For a result without a call, returns
    /// the result's own id in an accepted form.
    pub(crate) fn result(&mut self, id: Option<&str>) -> String {
        let target = Target::id(id);
        let call = match self.calls.answer(target) {
            Answers::Call(call) => self.written.get(call),
            Answers::Again | Answers::Nothing => None,
        };
        call.cloned().unwrap_or_else(|| self.acceptable(target.id.unwrap_or("call")))
    }

    fn acceptable(&self, id: &str) -> String {
        if self.takes_any { id.to_owned() } else { acceptable(id) }
    }

    /// Returns the wanted id, or the id with a number at its end if another call of the round has the id.
    fn free(&mut self, wanted: String) -> String {
        if !self.taken.contains(&wanted) {
            return wanted;
        }
        let number = self.next_number.entry(wanted.clone()).or_insert(2);
        loop {
            let id = format!("{wanted}_{number}");
            *number += 1;
            if !self.taken.contains(&id) {
                return id;
            }
        }
    }
}

/// Replaces every character that the service does not accept by `_`.
fn acceptable(id: &str) -> String {
    let is_accepted =
        |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    id.chars().map(|character| if is_accepted(character) { character } else { '_' }).collect()
}
