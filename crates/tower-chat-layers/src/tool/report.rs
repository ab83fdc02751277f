//! What came out of a call, beside its result.

use std::time::SystemTime;

use tower_chat_core::{ToolResult, ToolStatus};

use super::CallOfRun;

/// What came out of a call.
pub(crate) type ToolOutcome = (CallOfRun, ToolResult, ToolReport);

/// What a tool loop knows of a result and the result does not say.
#[derive(Debug, Clone)]
pub(crate) struct ToolReport {
    pub(crate) status: ToolStatus,
    pub(crate) error: Option<String>,
    pub(crate) started_at: Option<SystemTime>,
    pub(crate) finished_at: Option<SystemTime>,
    pub(crate) source: ResultSource,
}

/// Who has made a result: it decides whether a hook may have to change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultSource {
    /// A tool, or a caller instead of it.
    Tool,
    /// The tool loop, in words of its own.
    ToolLoop,
    /// The record of an earlier attempt: it is in the form in which it may be stored.
    Record,
}

impl ToolReport {
    /// The report of a call whose tool was not run, or of which nothing more is known.
    pub(crate) fn not_run(status: ToolStatus) -> Self {
        let source = ResultSource::ToolLoop;
        Self { status, error: None, started_at: None, finished_at: None, source }
    }

    /// The same of a result that has another source.
    pub(crate) fn from(source: ResultSource, status: ToolStatus) -> Self {
        Self { source, ..Self::not_run(status) }
    }

    /// What a result alone says.
    pub(crate) fn of(result: &ToolResult) -> Self {
        let status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Self::from(ResultSource::Tool, status)
    }
}

/// What is known of the results in a message, of which there mostly is one.
pub(crate) type ToolReports = Vec<ToolReport>;
