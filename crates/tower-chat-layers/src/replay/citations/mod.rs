//! Step 6 of the [replay](super): removes the numbered sources that a tool found and that the
//! model's text did not cite.

mod cited;
mod settings;
mod sources;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use tower_chat_core::{Message, Messages, Part, Role, pairing::asked_call};

use self::{
    cited::cite,
    sources::{compact, items, looks_like_sources},
};
pub use self::{
    settings::{Citations, CompactionTime, Uncited},
    sources::Source,
};
use super::{
    output::{self, MessageRef, shared_or_new},
    turns::{Turns, is_answer},
};

impl Citations {
    /// Returns the messages without uncited sources.
    pub fn apply(&self, messages: &Messages) -> Messages {
        let mut output: Vec<MessageRef<'_>> = messages.iter().map(Cow::Borrowed).collect();
        let mut turns = Turns::default();
        if let Some(first) = output.first() {
            turns.begins_with(first);
        }
        for turn in output.chunk_by_mut(|_, next| !turns.begins_with(next)) {
            self.compact_turn(turn);
        }
        shared_or_new(messages, output)
    }

    /// Returns the highest number of a source in the conversation. The search includes every item
    /// with a number in every array. If a result was truncated, the search includes the items
    /// before the cut.
    pub fn highest_number(&self, messages: &Messages) -> Option<u64> {
        let items = self.items(messages);
        items.filter_map(|item| sources::number_of(item, &self.number_key)).max()
    }

    /// Returns the first number for the sources of the next run.
    pub fn next_number(&self, messages: &Messages) -> u64 {
        self.highest_number(messages).map_or(0, |highest| highest.saturating_add(1))
    }

    /// Returns the sources of the conversation by their numbers. If several sources have the same
    /// number, the map contains the last of them. The map does not contain items whose content is
    /// not a text.
    pub fn source_map(&self, messages: &Messages) -> BTreeMap<u64, Source> {
        let items = self.items(messages);
        items.filter_map(|item| Source::read(item, &self.number_key, &self.content_key)).collect()
    }

    fn items<'a>(&self, messages: &'a Messages) -> impl Iterator<Item = &'a str> + use<'a> {
        let results = messages.iter().flat_map(|message| message.results());
        let texts = results.flat_map(|result| result.content.iter().filter_map(Part::as_text));
        texts.filter(|text| text.trim_start().starts_with('[')).flat_map(items)
    }

    /// Removes the sources that no text of the turn cites.
    fn compact_turn(&self, turn: &mut [MessageRef<'_>]) {
        let Some(cited) = self.cited(turn) else { return };
        for message in turn.iter_mut().filter(|message| message.role == Role::Tool) {
            if let Some(compacted) = self.compact_results(message, &cited) {
                *message = output::changed(compacted);
            }
        }
    }

    /// Returns the numbers that the turn cites, or `None` if the turn must not be changed.
    fn cited(&self, turn: &[MessageRef<'_>]) -> Option<BTreeSet<u64>> {
        let has_sources =
            |message: &MessageRef<'_>| texts_of_results(message).any(looks_like_sources);
        if !turn.iter().any(has_sources) || !has_final_text(turn) {
            return None;
        }
        let mut cited = BTreeSet::new();
        for message in turn.iter().filter(|message| message.role == Role::Assistant) {
            // A citation may begin in one text part and end in the next one.
            cite(&message.text(), &mut cited);
        }
        (!cited.is_empty() || self.uncited != Uncited::LeaveAlone).then_some(cited)
    }

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

fn has_final_text(turn: &[MessageRef<'_>]) -> bool {
    let is_of_round = |message: &&MessageRef<'_>| {
        message.role == Role::Tool || message.parts.iter().any(|part| asked_call(part).is_some())
    };
    turn.iter()
        .rev()
        .take_while(|message| !is_of_round(message))
        .filter(|message| is_answer(message))
        .any(|message| texts(message).any(|text| !text.trim().is_empty()))
}

/// Returns the parts, some of them replaced by `change`. Returns `None` if `change` replaces none
/// of them.
fn changed(parts: &[Part], change: impl Fn(&Part) -> Option<Part>) -> Option<Vec<Part>> {
    let changed: Vec<Option<Part>> = parts.iter().map(change).collect();
    let or_old = |(new, old): (Option<Part>, &Part)| new.unwrap_or_else(|| old.clone());
    let is_changed = changed.iter().any(Option::is_some);
    is_changed.then(|| changed.into_iter().zip(parts).map(or_old).collect())
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.parts.iter().filter_map(Part::as_text)
}

fn texts_of_results(message: &Message) -> impl Iterator<Item = &str> {
    message.results().flat_map(|result| result.content.iter().filter_map(Part::as_text))
}

#[cfg(test)]
mod tests;
