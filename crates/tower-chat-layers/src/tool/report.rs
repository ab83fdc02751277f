//! The outcome of a call, in addition to its result.

use std::time::SystemTime;

use tower_chat_core::{ToolResult, ToolStatus};

use super::CallOfRun;

/// The outcome of a call.
pub(crate) type ToolOutcome = (CallOfRun, ToolResult, ToolReport);

/// The data of a tool loop about a result that the result itself does not contain.
#[derive(Debug, Clone)]
pub(crate) struct ToolReport {
    pub(crate) status: ToolStatus,
    pub(crate) error: Option<String>,
    pub(crate) started_at: Option<SystemTime>,
    pub(crate) finished_at: Option<SystemTime>,
    pub(crate) source: ResultSource,
}

/// The origin of a result, which decides whether a hook must be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultSource {
    /// A tool, or the caller in its place.
    Tool,
    /// The tool loop, with its own text.
    ToolLoop,
    /// The record of an earlier attempt. The result is already in the form in which it may be stored.
    Record,
}

impl ToolReport {
    /// Returns the report of a call whose tool was not run, or about which nothing more is known.
    pub(crate) fn not_run(status: ToolStatus) -> Self {
        let source = ResultSource::ToolLoop;
        Self { status, error: None, started_at: None, finished_at: None, source }
    }

    /// Returns the report of a result with another source.
    pub(crate) fn from(source: ResultSource, status: ToolStatus) -> Self {
        Self { source, ..Self::not_run(status) }
    }

    /// Returns the report that follows from a result.
    pub(crate) fn of(result: &ToolResult) -> Self {
        let status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Self::from(ResultSource::Tool, status)
    }
}

/// The reports about the results in a message, usually one.
pub(crate) type ToolReports = Vec<ToolReport>;
