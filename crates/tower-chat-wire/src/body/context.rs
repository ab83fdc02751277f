//! What the reader of an answer knows of its request.

use crate::openai_responses::HistoryLocation;

/// What the reader of an answer knows of the request that it answers.
///
/// Only answers of OpenAI Responses are read differently by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerContext {
    /// Where the history of the request is. It decides which service id the answer
    /// has; where it is not known, the fields of the answer do.
    pub history: Option<HistoryLocation>,
    /// Whether a background answer was asked for, which may still be in progress. It is read as an
    /// answer without messages, with its id as the continuation token. Otherwise such an answer is
    /// malformed.
    pub is_background: bool,
}

impl AnswerContext {
    /// What is known of a request whose history is there.
    pub fn of_history(location: HistoryLocation) -> Self {
        Self { history: Some(location), is_background: false }
    }

    /// The same request, for a background answer or not.
    #[must_use]
    pub fn with_background(mut self, is_background: bool) -> Self {
        self.is_background = is_background;
        self
    }
}
