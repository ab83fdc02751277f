//! The record of a tool call, which is stored separately from the messages.

use std::{fmt, str::FromStr, time::SystemTime};

use crate::{MessageId, ToolResult};

/// The record of one tool call: its status, times and result.
///
/// The store has a record of every call. It also has the record of a call that the replay omits
/// from the requests to a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolInvocation {
    /// The message that contains the call.
    pub message: MessageId,
    /// The sequence number of that message in its conversation, from 1.
    pub sequence: u64,
    /// The index of the call's round in its run, from 0. A round consists of the calls of one
    /// answer and their results.
    pub round_index: u32,
    /// The index of the call among the [asked calls](crate::Message::asked_calls) of the message,
    /// from 0.
    pub sequence_index: u32,
    /// The call id that the model receives.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The text of the arguments, byte for byte, unless the tool's hook (`Tool::persist`) redacted
    /// them.
    pub arguments: String,
    /// The status of the call.
    pub status: ToolStatus,
    /// The stored result of the call; `None` if the call has no result.
    pub result: Option<ToolResult>,
    /// A description of the failure for people, not for the model.
    pub error: Option<String>,
    /// The time at which the tool started.
    pub started_at: Option<SystemTime>,
    /// The time at which the tool finished.
    pub finished_at: Option<SystemTime>,
    /// The time until which no other process may start the call (the lease). `None` unless a run is
    /// executing the call after its approval.
    pub held_until: Option<SystemTime>,
}

/// The status of a tool call.
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
    /// The tool returned a result.
    Ok,
    /// The tool failed. The result describes the failure.
    Error,
    /// The call was rejected instead of approved.
    RejectedByApproval,
    /// The arguments are not valid for the tool, and the call was not run.
    RejectedArguments,
    /// No tool has this name.
    UnknownTool,
    /// The run had used up its limit of tool calls.
    SkippedBudget,
    /// The run was stopped before the call began.
    Stopped,
    /// The call has no result, and none of the following statuses applies.
    Pending,
    /// The call waits for approval.
    PendingApproval,
    /// The call may or may not have run.
    Interrupted,
    /// The run ended by returning the call to the caller, and the caller has not sent the result
    /// yet.
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

    /// Returns the name under which the status is stored and queried, such as
    /// `rejected_by_approval`.
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

    /// Returns whether the call has no result yet, but may still get one.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::PendingApproval | Self::Interrupted | Self::Returned)
    }
}

impl fmt::Display for ToolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of parsing a text that is not the name of a [`ToolStatus`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a tool status, such as ok or error")]
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
