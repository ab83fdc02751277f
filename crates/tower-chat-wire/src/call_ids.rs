//! The ids of calls, as the wires of Anthropic, Bedrock and Cohere take them.

use std::collections::{HashMap, HashSet};

use tower_chat_core::{
    Role,
    pairing::{Answers, Candidate, Matcher, Target},
};

/// The calls of one round: an answer of the assistant, in however many messages, and its results.
///
/// Anthropic and Bedrock want ids of ASCII letters, digits, `_` and `-`, each once in a round; an id that is
/// like that stays. Nothing but the round decides, so that a round is written alike whatever
/// stands before it.
#[derive(Debug, Default)]
pub(crate) struct Round {
    calls: Matcher<String>,
    /// The id with which each call was written.
    written: Vec<String>,
    taken: HashSet<String>,
    /// For an id that was wanted again, the number to try next; the smaller ones are taken.
    next_number: HashMap<String, usize>,
    /// Ids may have any character.
    takes_any: bool,
    /// Some call was written with another id than it has.
    has_renamed: bool,
    /// Something else than messages of the assistant has followed.
    is_answered: bool,
}

impl Round {
    /// A round on a wire that takes ids of any characters.
    pub(crate) fn of_any_ids() -> Self {
        Self { takes_any: true, ..Self::default() }
    }

    /// Whether some call was written with another id than it has.
    pub(crate) fn has_renamed(&self) -> bool {
        self.has_renamed
    }

    /// A message follows, which may ask for tools. An answer behind something else begins another
    /// round.
    pub(crate) fn follow(&mut self, role: Role, asks: bool) {
        if role != Role::Assistant {
            self.is_answered = true;
        } else if asks && self.is_answered {
            *self = Self { takes_any: self.takes_any, ..Self::default() };
        }
    }

    /// The id to write for the next call.
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

    /// The id to write for the next result: that of the call that it answers.
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

/// The id with every character that the wire does not take replaced.
fn acceptable(id: &str) -> String {
    let is_taken = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    id.chars().map(|character| if is_taken(character) { character } else { '_' }).collect()
}
