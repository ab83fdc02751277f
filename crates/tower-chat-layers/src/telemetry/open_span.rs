//! The span of an operation that has started.

use std::sync::Arc;

use tower_chat_core::{BoxError, Finish, Message, telemetry::Outcome};
use tracing::Span;

use super::{
    measured::Measured,
    run_span::RunSpan,
    spans::{
        TOOL_ERROR, error_type, record_error, record_finish, record_mode, record_outcome,
        record_output, record_result,
    },
};

/// A span that records the outcome and the metrics of its operation. A drop before the end of the
/// operation is recorded as the outcome `dropped`.
pub(crate) struct OpenSpan {
    span: Span,
    measured: Option<Box<Measured>>,
    /// `None` for operations that are not runs.
    of_run: Option<RunSpan>,
    is_ended: bool,
    /// The messages of the answer that have arrived. `None` if content is not recorded.
    content: Option<Vec<Arc<Message>>>,
}

impl OpenSpan {
    pub(crate) fn new(span: Span, measured: Option<Box<Measured>>) -> Self {
        Self { span, measured, of_run: None, is_ended: false, content: None }
    }

    pub(super) fn with_run(mut self, span: RunSpan) -> Self {
        self.of_run = Some(span);
        self
    }

    pub(super) fn with_content(mut self, has_content: bool) -> Self {
        self.content = has_content.then(Vec::new);
        self
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn message(&mut self, message: &Arc<Message>) {
        if let Some(content) = &mut self.content {
            content.push(message.clone());
        }
    }

    /// Records that an update of the streamed answer has arrived.
    pub(super) fn chunk(&mut self) {
        if let Some(measured) = &mut self.measured {
            measured.chunk();
        }
    }

    pub(super) fn finished(&mut self, finish: &Finish) {
        record_finish(&self.span, finish);
        if let Some(measured) = &mut self.measured {
            measured.finished(finish);
        }
        if let Some(content) = self.content.take() {
            record_output(&self.span, content.iter().map(|message| &**message));
        }
        self.completed();
    }

    pub(super) fn completed(&mut self) {
        self.end(Outcome::Completed, None);
    }

    pub(super) fn failed(&mut self, error: &BoxError) {
        self.failed_by(error_type(error));
    }

    fn failed_by(&mut self, error: &'static str) {
        record_error(&self.span, error);
        self.end(Outcome::Failed, Some(error));
    }

    /// `text` is the text of the output, if content is recorded.
    pub(crate) fn tool_answered(&mut self, text: Option<&str>, is_error: bool) {
        record_result(&self.span, text);
        match is_error {
            true => self.failed_by(TOOL_ERROR),
            false => self.completed(),
        }
    }

    fn end(&mut self, outcome: Outcome, error: Option<&'static str>) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        record_outcome(&self.span, outcome);
        if let Some(mode) = self.of_run.as_ref().and_then(RunSpan::mode) {
            record_mode(&self.span, mode);
        }
        if let Some(measured) = &self.measured {
            measured.end(outcome, error);
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        self.end(Outcome::Dropped, None);
    }
}
