//! The data about the outcome of a call that the result of the call does not contain, such as times
//! and status.

use std::time::SystemTime;

use tower_chat_core::{ToolResult, ToolStatus};

use super::CallOfRun;

/// The position of a call, its result, and its report.
pub(crate) type ToolOutcome = (CallOfRun, ToolResult, ToolReport);

/// The data about an outcome that the result does not contain.
#[derive(Debug, Clone)]
pub(crate) struct ToolReport {
    pub(crate) status: ToolStatus,
    pub(crate) error: Option<String>,
    pub(crate) started_at: Option<SystemTime>,
    pub(crate) finished_at: Option<SystemTime>,
    pub(crate) source: ResultSource,
}

/// The origin of a result. The origin decides whether the [`persist`](super::Tool::persist) hook of
/// the tool must be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultSource {
    /// A tool, or the caller, who executed the call instead of a tool.
    Tool,
    /// The tool loop, which answers a call that it does not run.
    ToolLoop,
    /// The record of tool calls of an earlier attempt, whose results the hook has already
    /// processed.
    Record,
}

impl ToolReport {
    /// Returns the report for a call that was not run, or whose times and error are unknown.
    pub(crate) fn not_run(status: ToolStatus) -> Self {
        let source = ResultSource::ToolLoop;
        Self { status, error: None, started_at: None, finished_at: None, source }
    }

    pub(crate) fn with_source(source: ResultSource, status: ToolStatus) -> Self {
        Self { source, ..Self::not_run(status) }
    }

    pub(crate) fn of_result(result: &ToolResult) -> Self {
        let status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Self::with_source(ResultSource::Tool, status)
    }
}

pub(crate) type ToolReports = Vec<ToolReport>;
