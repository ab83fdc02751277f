//! The settings for the removal of sources that the answer did not cite.

use std::sync::Arc;

use serde::Deserialize;

/// Removes sources from the results of tools if the turn did not cite them. A turn is the messages
/// of one run, from the input to the final answer.
///
/// A tool that finds sources returns a JSON array of objects, each with its own number:
/// `[{"source_number": 0, "content": "..."}, ...]`. The model cites a source as `[source0]`, in
/// upper or lower case. `[source 0]` and `[source0, source1]` are not citations. A result is
/// changed only if its text is one such array. The remaining items keep their bytes and their
/// numbers. A result becomes `[]` if the turn cites only sources of other results.
///
/// A turn without a final answer, or with a final answer without text, is not changed. A source
/// remains if any text of the model in the turn cites it, because the model must not receive a
/// citation without its source.
///
/// Every turn is processed separately. The output for a turn is therefore the same before the turn
/// is stored and at every replay. A result that was truncated before this step is not changed,
/// because its text is not a complete array.
///
/// ```
/// use tower_chat::{Message, ToolCall, ToolResult, message::Messages, replay::Citations};
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
    pub(in crate::replay) when: CompactionTime,
    pub(in crate::replay) uncited: Uncited,
    pub(in crate::replay) number_key: Arc<str>,
    pub(in crate::replay) content_key: Arc<str>,
}

/// The time at which uncited sources are removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionTime {
    /// At every replay. The store keeps all sources.
    #[default]
    AtReplay,
    /// Before per-run mode writes the run. The other modes store results before the model has
    /// written the final text, and therefore refuse this setting with
    /// [`PersistenceError::CitationsAtSave`](crate::PersistenceError::CitationsAtSave).
    AtSave,
}

/// The policy for the sources of a turn without any citation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Uncited {
    /// No source is removed.
    #[default]
    LeaveAlone,
    /// This text replaces each array of sources.
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
    /// Creates settings that remove uncited sources at the given time.
    pub fn when(when: CompactionTime) -> Self {
        Self { when, ..Self::default() }
    }

    /// Sets the policy for a turn without any citation.
    #[must_use]
    pub fn on_uncited(mut self, uncited: Uncited) -> Self {
        self.uncited = uncited;
        self
    }

    /// Sets the key of a source's number, `source_number` by default.
    #[must_use]
    pub fn with_number_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.number_key = key.into();
        self
    }

    /// Sets the key of a source's content, `content` by default.
    #[must_use]
    pub fn with_content_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.content_key = key.into();
        self
    }

    /// Returns the time at which uncited sources are removed.
    pub fn time(&self) -> CompactionTime {
        self.when
    }
}
