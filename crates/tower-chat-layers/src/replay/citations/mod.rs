//! Step 5: sources that the answer did not cite.

mod cited;
mod compaction;
mod sources;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use tower_chat_core::{Messages, Part};

use self::{compaction::Compaction, sources::items};
use super::output::ReplayOutput;
pub use sources::Source;

/// Leaves out of the results of tools what the answer of their turn did not cite.
///
/// A tool that finds sources answers with a JSON array of objects, each with a number of its own:
/// `[{"source_number": 0, "content": "..."}, ...]`. The model cites them as `[source0]`, in upper
/// or lower case; `[source 0]` and `[source0, source1]` are no citations. Only text that is such
/// an array from beginning to end is touched, and of the items that stay every byte stays: numbers
/// never change, and a result of which nothing was cited while others were becomes `[]`.
///
/// A turn that has no final answer yet, or one without text, is left alone. All of the model's
/// text in the turn counts as citing, so that the model is never shown a citation of something it
/// is not shown.
///
/// Every turn is looked at by itself, so it does not matter whether this is done when a turn is
/// saved or when it is replayed. Results must not have been truncated before: what is cut is no
/// whole array, and stays as it is.
///
/// ```
/// use tower_chat::{Message, Messages, ToolCall, ToolResult, replay::Citations};
/// let found = r#"[{"source_number": 0, "content": "a"}, {"source_number": 1, "content": "b"}]"#;
/// let messages: Messages = [
///     Message::user("What do we know?"),
///     Message::tool_calls([ToolCall::new("c1", "search", "{}")]),
///     Message::tool_results([ToolResult::new("c1", found)]),
///     Message::assistant("That b holds [source1]."),
/// ].into();
/// let citations = Citations::default();
/// let shown = citations.apply(&messages);
/// let result = shown.get(2).and_then(|message| message.results().next()).map(|result| result.text());
/// assert_eq!(result.as_deref(), Some(r#"[{"source_number": 1, "content": "b"}]"#));
/// assert_eq!(citations.next_number(&messages), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citations {
    when: CompactionTime,
    uncited: Uncited,
    number_key: Arc<str>,
    content_key: Arc<str>,
}

/// When uncited sources are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CompactionTime {
    /// At every replay; the record keeps them.
    #[default]
    AtReplay,
    /// With the append of a whole run, in per-run mode. The other modes store results before the
    /// final text is known, and refuse it
    /// ([`PersistenceError::CitationsAtSave`](crate::PersistenceError::CitationsAtSave)).
    AtSave,
}

/// What becomes of the sources of a turn whose answer cites nothing at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Uncited {
    /// They stay.
    #[default]
    LeaveAlone,
    /// A sentence stands instead.
    Replace(String),
}

impl Default for Citations {
    fn default() -> Self {
        Self {
            when: CompactionTime::default(),
            uncited: Uncited::default(),
            number_key: "source_number".into(),
            content_key: "content".into(),
        }
    }
}

impl Citations {
    /// Compaction at a time.
    pub fn when(when: CompactionTime) -> Self {
        Self { when, ..Self::default() }
    }

    /// What to do with a turn that cites nothing.
    #[must_use]
    pub fn on_uncited(mut self, uncited: Uncited) -> Self {
        self.uncited = uncited;
        self
    }

    /// The key of a source's number; `source_number` if nothing else is said.
    #[must_use]
    pub fn with_number_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.number_key = key.into();
        self
    }

    /// The key of a source's content; `content` if nothing else is said.
    #[must_use]
    pub fn with_content_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.content_key = key.into();
        self
    }

    /// When uncited sources are left out.
    pub fn time(&self) -> CompactionTime {
        self.when
    }

    /// The messages without uncited sources.
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

    /// The highest number of a source in the conversation. Items of any array count that have a
    /// number, those before the position where a result was cut included.
    pub fn highest_number(&self, messages: &Messages) -> Option<u64> {
        let items = self.items(messages);
        items.filter_map(|item| sources::number_of(item, &self.number_key)).max()
    }

    /// The number with which the next turn goes on counting.
    pub fn next_number(&self, messages: &Messages) -> u64 {
        self.highest_number(messages).map_or(0, |highest| highest.saturating_add(1))
    }

    /// The sources of the conversation by their numbers. Where a number came twice, the last one
    /// counts; items whose content is no text are left out.
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
