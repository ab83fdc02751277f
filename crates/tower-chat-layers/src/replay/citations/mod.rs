//! Step 6 of the [replay](super): removes the numbered sources that a tool found and that the
//! model's text did not cite.

mod cited;
mod compaction;
mod settings;
mod sources;

use std::{borrow::Cow, collections::BTreeMap};

use tower_chat_core::{Messages, Part};

use self::{compaction::Compaction, sources::items};
pub use self::{
    settings::{Citations, CompactionTime, Uncited},
    sources::Source,
};
use super::output::ReplayOutput;

impl Citations {
    /// Returns the messages without uncited sources.
    pub fn apply(&self, messages: &Messages) -> Messages {
        let mut output = ReplayOutput::of(messages);
        let mut next = |message| output.push(message);
        let mut step = self.step();
        messages.iter().for_each(|message| step.pass(Cow::Borrowed(message), &mut next));
        step.finish(&mut next);
        output.finish()
    }

    pub(super) fn step<'a>(&self) -> Compaction<'_, 'a> {
        Compaction::of(self)
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
}

#[cfg(test)]
mod tests;
