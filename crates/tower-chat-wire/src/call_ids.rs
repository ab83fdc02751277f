//! The ids of calls, as the wires of Anthropic, Bedrock and Cohere take them.

use std::collections::{HashMap, HashSet, VecDeque};

/// The calls of one round: an assistant's turn and what answers it.
///
/// Anthropic and Bedrock want ids of ASCII letters, digits, `_` and `-`, each once in a round; an id that is
/// like that stays. Nothing but the round decides, so that a round is written alike whatever
/// stands before it.
#[derive(Debug, Default)]
pub(crate) struct Round {
    calls: Vec<Call>,
    /// The calls that wait for a result, by the id they original with; `""` for none.
    waiting: HashMap<String, VecDeque<usize>>,
    taken: HashSet<String>,
    /// For an id that was wanted again, the number to try next; the smaller ones are taken.
    next_number: HashMap<String, usize>,
    /// All calls before this one are answered.
    first_open: usize,
    /// Ids may have any character.
    takes_any: bool,
    /// Some call was written with another id than it has.
    has_renamed: bool,
}

#[derive(Debug)]
struct Call {
    id: String,
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

    /// The id to write for the next call.
    pub(crate) fn call(&mut self, id: Option<&str>) -> String {
        let position = self.calls.len();
        let original = id.unwrap_or_default();
        let wanted = if original.is_empty() {
            format!("call_{position}")
        } else {
            self.acceptable(original)
        };
        let id = self.free(wanted);
        self.has_renamed |= id != original;
        self.taken.insert(id.clone());
        self.waiting.entry(original.to_owned()).or_default().push_back(position);
        self.calls.push(Call { id: id.clone(), is_answered: false });
        id
    }

    /// The id to write for the next result: that of the first open call with its id, or, if it has
    /// none, of the first open call.
    pub(crate) fn result(&mut self, id: Option<&str>) -> String {
        let original = id.unwrap_or_default();
        let named = self.next_named(original);
        let position = named.or_else(|| if original.is_empty() { self.next_open() } else { None });
        match position.and_then(|position| self.calls.get_mut(position)) {
            Some(call) => {
                call.is_answered = true;
                call.id.clone()
            }
            None if original.is_empty() => "call".to_owned(),
            None => self.acceptable(original),
        }
    }

    fn acceptable(&self, id: &str) -> String {
        if self.takes_any { id.to_owned() } else { acceptable(id) }
    }

    fn next_named(&mut self, original: &str) -> Option<usize> {
        let waiting = self.waiting.get_mut(original)?;
        while let Some(position) = waiting.pop_front() {
            if self.calls.get(position).is_some_and(|call| !call.is_answered) {
                return Some(position);
            }
        }
        None
    }

    fn next_open(&mut self) -> Option<usize> {
        while self.calls.get(self.first_open)?.is_answered {
            self.first_open += 1;
        }
        Some(self.first_open)
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
