//! Removes the sources that no text of their turn cites. A turn is the messages of one run, from
//! the input to the final answer.

use std::collections::BTreeSet;

use tower_chat_core::{Message, Part, Role, pairing::asked_call};

use super::{
    cited::cite,
    settings::{Citations, Uncited},
    sources::{compact, looks_like_sources},
};
use crate::replay::{
    output::{self, MessageRef},
    turns::{Turns, is_answer},
};

/// The step that removes uncited sources. Buffers the messages of a turn, because a later message
/// of the turn may cite a source.
#[derive(Debug)]
pub(in crate::replay) struct Compaction<'c, 'a> {
    citations: &'c Citations,
    turns: Turns,
    turn: Vec<MessageRef<'a>>,
}

impl<'c, 'a> Compaction<'c, 'a> {
    pub(super) fn of(citations: &'c Citations) -> Self {
        Self { citations, turns: Turns::default(), turn: Vec::new() }
    }

    pub(in crate::replay) fn pass(
        &mut self,
        message: MessageRef<'a>,
        next: &mut impl FnMut(MessageRef<'a>),
    ) {
        if self.turns.begins_with(&message) {
            self.end_turn(next);
        }
        self.turn.push(message);
    }

    pub(in crate::replay) fn finish(mut self, next: &mut impl FnMut(MessageRef<'a>)) {
        self.end_turn(next);
    }

    fn end_turn(&mut self, next: &mut impl FnMut(MessageRef<'a>)) {
        if let Some(cited) = self.cited() {
            for message in self.turn.iter_mut().filter(|message| message.role == Role::Tool) {
                if let Some(compacted) = self.citations.compact_results(message, &cited) {
                    *message = output::changed(compacted);
                }
            }
        }
        self.turn.drain(..).for_each(next);
    }

    /// Returns the numbers that the turn cites, or `None` if the turn must not be changed.
    fn cited(&self) -> Option<BTreeSet<u64>> {
        let has_sources =
            |message: &MessageRef<'a>| texts_of_results(message).any(looks_like_sources);
        if !self.turn.iter().any(has_sources) || !self.has_final_text() {
            return None;
        }
        let mut cited = BTreeSet::new();
        let answers = self.turn.iter().filter(|message| message.role == Role::Assistant);
        for message in answers {
            // A citation may begin in one text part and end in the next one.
            cite(&message.text(), &mut cited);
        }
        (!cited.is_empty() || self.citations.uncited != Uncited::LeaveAlone).then_some(cited)
    }

    fn has_final_text(&self) -> bool {
        let is_of_round = |message: &&MessageRef<'a>| {
            message.role == Role::Tool
                || message.parts.iter().any(|part| asked_call(part).is_some())
        };
        self.turn
            .iter()
            .rev()
            .take_while(|message| !is_of_round(message))
            .filter(|message| is_answer(message))
            .any(|message| texts(message).any(|text| !text.trim().is_empty()))
    }
}

impl Citations {
    fn compact_results(&self, message: &Message, cited: &BTreeSet<u64>) -> Option<Message> {
        let changed = changed(&message.parts, |part| {
            let Part::ToolResult(result) = part else { return None };
            let content = changed(&result.content, |part| {
                let text = part.as_text().filter(|text| looks_like_sources(text))?;
                compact(text, &self.number_key, cited, &self.uncited).map(Part::text)
            });
            content.map(|content| result.with_content(content).into())
        });
        changed.map(|parts| message.with_parts(parts))
    }
}

/// Returns the parts, some of them replaced by `change`. Returns `None` if `change` replaces none
/// of them.
fn changed(parts: &[Part], change: impl Fn(&Part) -> Option<Part>) -> Option<Vec<Part>> {
    let mut changed: Option<Vec<Part>> = None;
    for (index, part) in parts.iter().enumerate() {
        match (change(part), &mut changed) {
            (None, None) => {}
            (None, Some(changed)) => changed.push(part.clone()),
            (Some(other), Some(changed)) => changed.push(other),
            (Some(other), None) => {
                let mut before = Vec::with_capacity(parts.len());
                before.extend(parts.iter().take(index).cloned());
                before.push(other);
                changed = Some(before);
            }
        }
    }
    changed
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.parts.iter().filter_map(Part::as_text)
}

fn texts_of_results(message: &Message) -> impl Iterator<Item = &str> {
    message.results().flat_map(|result| result.content.iter().filter_map(Part::as_text))
}
