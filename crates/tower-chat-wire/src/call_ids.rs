//! Call ids in the form that the services of Anthropic, Bedrock and Cohere accept.

use std::collections::{HashMap, HashSet};

use tower_chat_core::{
    Role,
    pairing::{Answers, Candidate, Matcher, Target},
};

/// Assigns the call ids of one round: the calls in consecutive assistant messages, and their
/// results. The result of a call gets the same id as the call.
///
/// No two calls of a round may have the same id, and Anthropic and Bedrock accept only ids of ASCII
/// letters, digits, `_` and `-`. Any other id is replaced by an id that depends only on the calls
/// of the round: if earlier messages are removed or changed, the round is still written with the
/// same ids.
#[derive(Debug, Default)]
pub(crate) struct Round {
    calls: Matcher<String>,
    /// The ids that were written for the calls, in the order of the calls.
    written_ids: Vec<String>,
    /// The ids in `written_ids`. No later call of the round may have one of these ids.
    used_ids: HashSet<String>,
    /// For each id that several calls have: the number that the id of the next such call ends with.
    next_number: HashMap<String, usize>,
    /// Whether ids may contain any character.
    accepts_any: bool,
    /// Whether the written id of at least one call differs from the call's own id.
    has_renamed: bool,
    /// Whether a message of another role follows the assistant messages of the round.
    is_answered: bool,
}

impl Round {
    /// Creates a round for a service that accepts ids of any characters.
    pub(crate) fn of_any_ids() -> Self {
        Self { accepts_any: true, ..Self::default() }
    }

    /// Returns whether the written id of at least one call differs from the call's own id.
    pub(crate) fn has_renamed(&self) -> bool {
        self.has_renamed
    }

    /// Begins the next message. `has_calls` is whether the message has calls. An assistant message
    /// with calls begins a new round if a message of another role precedes it.
    pub(crate) fn begin_message(&mut self, role: Role, has_calls: bool) {
        if role != Role::Assistant {
            self.is_answered = true;
        } else if has_calls && self.is_answered {
            *self = Self { accepts_any: self.accepts_any, ..Self::default() };
        }
    }

    /// Returns the id to write for the next call.
    pub(crate) fn call(&mut self, id: Option<&str>) -> String {
        let original = id.unwrap_or_default();
        let wanted = if original.is_empty() {
            format!("call_{}", self.written_ids.len())
        } else {
            self.acceptable(original)
        };
        let written = self.unused_id(wanted);
        self.has_renamed |= written != original;
        self.used_ids.insert(written.clone());
        self.written_ids.push(written.clone());
        self.calls.push(Candidate::of_id(id).into_owned());
        written
    }

    /// Returns the id to write for the next result: the written id of the call that the result
    /// answers, or the result's own id if it answers no call.
    pub(crate) fn result(&mut self, id: Option<&str>) -> String {
        let target = Target::id(id);
        let call = match self.calls.answer(target) {
            Answers::Call(call) => self.written_ids.get(call),
            Answers::Again | Answers::Nothing => None,
        };
        call.cloned().unwrap_or_else(|| self.acceptable(target.id.unwrap_or("call")))
    }

    fn acceptable(&self, id: &str) -> String {
        if self.accepts_any { id.to_owned() } else { acceptable(id) }
    }

    /// Returns the wanted id, with a number if another call of the round already has this id.
    fn unused_id(&mut self, wanted: String) -> String {
        if !self.used_ids.contains(&wanted) {
            return wanted;
        }
        let number = self.next_number.entry(wanted.clone()).or_insert(2);
        loop {
            let id = format!("{wanted}_{number}");
            *number += 1;
            if !self.used_ids.contains(&id) {
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
