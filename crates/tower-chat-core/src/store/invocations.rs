//! Questions to the record of tool calls.

use std::{
    ops::Range,
    time::{Duration, SystemTime},
};

use super::author::ToolRecord;
use crate::{ConversationKey, ToolInvocation, ToolStatus};

/// Which tool calls are asked for: those of one scope that fit everything that is set.
///
/// ```
/// use tower_chat_core::{ToolStatus, store::InvocationQuery};
/// let failed = InvocationQuery::in_scope("alice").of_tool("weather").with_status(ToolStatus::Error);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvocationQuery {
    /// The scope.
    pub scope: String,
    /// Only calls of this conversation.
    pub conversation: Option<String>,
    /// Only calls in these messages of the conversation, by their numbers from 1. An empty list
    /// asks for nothing, and is answered without looking.
    pub sequences: Option<Vec<u64>>,
    /// Only calls of this tool.
    pub tool: Option<String>,
    /// Only calls that went so.
    pub status: Option<ToolStatus>,
    /// Only calls started in this range of time; calls that were never started do not fit.
    pub started: Option<Range<SystemTime>>,
    /// At most so many, the first in order.
    pub limit: Option<usize>,
}

impl InvocationQuery {
    /// All calls of a scope.
    pub fn in_scope(scope: impl Into<String>) -> Self {
        Self {
            scope: scope.into(),
            conversation: None,
            sequences: None,
            tool: None,
            status: None,
            started: None,
            limit: None,
        }
    }

    /// All calls of a conversation.
    pub fn of(key: &ConversationKey) -> Self {
        Self { conversation: Some(key.id().to_owned()), ..Self::in_scope(key.scope()) }
    }

    /// Only those in these messages, by their numbers from 1.
    #[must_use]
    pub fn in_messages(mut self, sequences: impl IntoIterator<Item = u64>) -> Self {
        self.sequences = Some(sequences.into_iter().collect());
        self
    }

    /// Only those of a tool.
    #[must_use]
    pub fn of_tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// Only those that went so.
    #[must_use]
    pub fn with_status(mut self, status: ToolStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Only those started in a range of time.
    #[must_use]
    pub fn started_in(mut self, range: Range<SystemTime>) -> Self {
        self.started = Some(range);
        self
    }

    /// At most so many.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether what is known of a call fits, apart from its conversation and the limit.
    pub fn fits(&self, record: &ToolRecord) -> bool {
        let is_in = |range: &Range<SystemTime>| {
            record.started_at.is_some_and(|started| range.contains(&started))
        };
        self.sequences.as_ref().is_none_or(|those| those.contains(&record.call.sequence))
            && self.tool.as_ref().is_none_or(|tool| *tool == record.name)
            && self.status.is_none_or(|status| status == record.status)
            && self.started.as_ref().is_none_or(is_in)
    }

    /// Whether nothing can fit, so that a store need not look.
    pub fn asks_for_nothing(&self) -> bool {
        self.limit == Some(0) || self.sequences.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The tool calls that were asked for, in the order of conversation, message and position.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Invocations {
    /// Those that could be read, with their conversations.
    pub found: Vec<(ConversationKey, ToolInvocation)>,
    /// Those that could not; the others are there all the same.
    pub unreadable: Vec<UnreadableInvocation>,
}

/// A row of the record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the record of call {index} in message {sequence} of conversation {key} cannot be read: {reason}"
)]
#[non_exhaustive]
pub struct UnreadableInvocation {
    /// The conversation.
    pub key: ConversationKey,
    /// The number of the message, from 1.
    pub sequence: u64,
    /// The call's position in it, from 0.
    pub index: u32,
    /// What is wrong with it.
    pub reason: String,
}

impl UnreadableInvocation {
    /// A row that cannot be read, and why.
    pub fn new(key: ConversationKey, sequence: u64, index: u32, reason: impl Into<String>) -> Self {
        Self { key, sequence, index, reason: reason.into() }
    }
}

/// What was counted of one tool.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::{ToolStatus, store::ToolTotals};
///
/// let now = SystemTime::now();
/// let later = Some(now + Duration::from_millis(80));
/// let mut totals = ToolTotals::new("weather");
/// totals.count(ToolStatus::Ok, Some(now), later);
/// totals.count(ToolStatus::Error, Some(now), later);
/// totals.count(ToolStatus::PendingApproval, None, None);
/// assert_eq!((totals.calls, totals.errors, totals.open), (3, 1, 1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolTotals {
    /// The tool.
    pub name: String,
    /// Its calls, however they went.
    pub calls: u64,
    /// Those whose tool failed.
    pub errors: u64,
    /// Those that were not answered yet.
    pub open: u64,
    /// The time the tool took, over all calls whose beginning and end are known.
    pub duration: Duration,
}

impl ToolTotals {
    /// Nothing counted yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), calls: 0, errors: 0, open: 0, duration: Duration::ZERO }
    }

    /// Counts one call more.
    pub fn count(
        &mut self,
        status: ToolStatus,
        started_at: Option<SystemTime>,
        finished_at: Option<SystemTime>,
    ) {
        self.calls += 1;
        self.errors += u64::from(status == ToolStatus::Error);
        self.open += u64::from(status.is_open());
        if let (Some(started), Some(finished)) = (started_at, finished_at) {
            let taken = finished.duration_since(started).unwrap_or_default();
            self.duration = self.duration.saturating_add(taken);
        }
    }
}
