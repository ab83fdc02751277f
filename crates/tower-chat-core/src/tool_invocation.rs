//! The record of a tool call, apart from the messages that carry it.

use std::{fmt, str::FromStr, time::SystemTime};

use crate::{MessageId, ToolResult};

/// What is known of one tool call.
///
/// The record is complete where the replay is not: calls whose result was never sent to the model,
/// was left out because it is stale, or never came are here too.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolInvocation {
    /// The message that holds the call.
    pub message: MessageId,
    /// The number of that message in its conversation, from 1.
    pub sequence: u64,
    /// Which of its turn's rounds the call belongs to, from 0.
    pub round_index: u32,
    /// The call's position in its parallel batch, from 0.
    pub sequence_index: u32,
    /// The id by which the model knows the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments' text, byte for byte, unless the tool's hook redacted them.
    pub arguments: String,
    /// How it went.
    pub status: ToolStatus,
    /// What the tool answered, as it is stored. `None` if nothing did.
    pub result: Option<ToolResult>,
    /// What went wrong, in words for people rather than for the model.
    pub error: Option<String>,
    /// When the tool was started.
    pub started_at: Option<SystemTime>,
    /// When it had finished.
    pub finished_at: Option<SystemTime>,
    /// Until when a run that is at work on the call holds it, if the call was approved and has no result.
    pub held_until: Option<SystemTime>,
}

/// How a tool call went.
///
/// ```
/// use tower_chat_core::ToolStatus;
///
/// let status: ToolStatus = "pending_approval".parse()?;
/// assert_eq!(status, ToolStatus::PendingApproval);
/// assert!(status.is_open() && !ToolStatus::Ok.is_open());
/// # Ok::<(), tower_chat_core::ParseToolStatusError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ToolStatus {
    /// The tool answered.
    Ok,
    /// The tool failed, and its result says so.
    Error,
    /// Somebody refused to let it run.
    RejectedByApproval,
    /// Its arguments were not what it takes, and it was not run.
    RejectedArguments,
    /// No tool has this name.
    UnknownTool,
    /// The run had used up its budget of tool calls.
    SkippedBudget,
    /// The run was stopped before it began.
    Stopped,
    /// Nothing is known of it yet: it was asked for, and not answered.
    Pending,
    /// It waits for approval.
    PendingApproval,
    /// It may or may not have run.
    Interrupted,
    /// The run ended with it: it was returned to the caller, who has not answered it.
    Returned,
}

impl ToolStatus {
    /// All statuses.
    pub const ALL: [Self; 11] = [
        Self::Ok,
        Self::Error,
        Self::RejectedByApproval,
        Self::RejectedArguments,
        Self::UnknownTool,
        Self::SkippedBudget,
        Self::Stopped,
        Self::Pending,
        Self::PendingApproval,
        Self::Interrupted,
        Self::Returned,
    ];

    /// The name by which it is stored and queried, such as `rejected_by_approval`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::RejectedByApproval => "rejected_by_approval",
            Self::RejectedArguments => "rejected_arguments",
            Self::UnknownTool => "unknown_tool",
            Self::SkippedBudget => "skipped_budget",
            Self::Stopped => "stopped",
            Self::Pending => "pending",
            Self::PendingApproval => "pending_approval",
            Self::Interrupted => "interrupted",
            Self::Returned => "returned",
        }
    }

    /// Whether a result may still come.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::PendingApproval | Self::Interrupted | Self::Returned)
    }
}

impl fmt::Display for ToolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is the name of no [`ToolStatus`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no tool status is called {text:?}")]
pub struct ParseToolStatusError {
    text: String,
}

impl FromStr for ToolStatus {
    type Err = ParseToolStatusError;

    fn from_str(text: &str) -> Result<Self, ParseToolStatusError> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| ParseToolStatusError { text: text.to_owned() })
    }
}
