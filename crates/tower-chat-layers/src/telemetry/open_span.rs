//! A span whose operation is under way.

use std::sync::Arc;

use tower_chat_core::{BoxError, Finish, Message};
use tracing::Span;

use super::spans::{
    Outcome, record_error, record_finish, record_outcome, record_output, record_result,
};

/// A span that says how its operation ended. An operation that is dropped before its end ends here.
pub(crate) struct OpenSpan {
    span: Span,
    is_ended: bool,
    /// What was answered so far, where content is recorded.
    content: Option<Vec<Arc<Message>>>,
}

impl OpenSpan {
    pub(crate) fn new(span: Span) -> Self {
        Self::recording_content(span, false)
    }

    pub(super) fn recording_content(span: Span, records_content: bool) -> Self {
        Self { span, is_ended: false, content: records_content.then(Vec::new) }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn message(&mut self, message: &Arc<Message>) {
        if let Some(content) = &mut self.content {
            content.push(message.clone());
        }
    }

    /// The answer is complete.
    pub(super) fn finished(&mut self, finish: &Finish) {
        record_finish(&self.span, finish);
        if let Some(content) = self.content.take() {
            record_output(&self.span, content.iter().map(|message| &**message));
        }
        self.completed();
    }

    pub(super) fn completed(&mut self) {
        self.end(Outcome::Completed);
    }

    pub(super) fn failed(&mut self, error: &BoxError) {
        record_error(&self.span, error);
        self.end(Outcome::Failed);
    }

    /// The same, where the error was recorded already.
    pub(super) fn ended_in_error(&mut self) {
        self.end(Outcome::Failed);
    }

    /// A tool answered with a text, where content is recorded, or with an error.
    pub(crate) fn tool_answered(&mut self, text: Option<&str>, is_error: bool) {
        record_result(&self.span, text, is_error);
        self.end(if is_error { Outcome::Failed } else { Outcome::Completed });
    }

    fn end(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_ended, true) {
            record_outcome(&self.span, outcome);
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        self.end(Outcome::Dropped);
    }
}
