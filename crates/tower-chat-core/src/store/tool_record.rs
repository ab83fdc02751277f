//! The rows that a write stores in the record of tool calls.

use std::{sync::Arc, time::SystemTime};

use crate::{Message, ToolInvocation, ToolResult, ToolStatus};

/// One row of the record of tool calls, as a write contains it. When the write is stored, the row
/// replaces the earlier row of the same call.
///
/// The call and its result are in messages, and the row refers to them by position, without a copy.
/// Only a result that is in no message is in the row itself.
///
/// The example creates the row of a requested call, and the row that replaces it after the call has
/// run:
///
/// ```
/// use tower_chat_core::{
///     Message, MessageId, RunId, ToolCall, ToolResult, ToolStatus,
///     store::{SequencePosition, author::{RecordedResult, ToolRecord}},
/// };
///
/// // Message 1 contains the call, message 2 its result.
/// let mut messages = [
///     Message::tool_calls([ToolCall::new("call_1", "weather", "{}")]),
///     Message::tool_results([ToolResult::new("call_1", "Rain.")]),
/// ];
/// let run = RunId::new();
/// for (message, index) in messages.iter_mut().zip(0..) {
///     message.id = Some(MessageId { run, index });
/// }
/// let asked = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "call_1", "weather");
/// let mut ran = asked.clone();
/// ran.status = ToolStatus::Ok;
/// ran.result = RecordedResult::InMessage(SequencePosition { sequence: 2, index: 0 });
///
/// let known = ran.resolve(|number| messages.get(number as usize - 1).cloned().map(Into::into))?;
/// assert_eq!(known.arguments, "{}");
/// assert_eq!(known.result.map(|result| result.text()).as_deref(), Some("Rain."));
/// # Ok::<(), tower_chat_core::store::author::UnresolvedRecord>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolRecord {
    /// The call.
    pub call: SequencePosition,
    /// The index of the call's round (an answer with calls, and their results) in its run, from 0.
    pub round_index: u32,
    /// The call id that the model receives.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The status of the call.
    pub status: ToolStatus,
    /// The location of the call's result.
    pub result: RecordedResult,
    /// A description of the failure for people.
    pub error: Option<String>,
    /// The time at which the tool started, to the millisecond.
    pub started_at: Option<SystemTime>,
    /// The time at which the tool finished, to the millisecond.
    pub finished_at: Option<SystemTime>,
    /// The time at which the lease on the call expires, to the millisecond. Only an approved call
    /// without a result has a lease. The run renews the lease while the tool runs.
    pub held_until: Option<SystemTime>,
}

/// The position of a tool call, or of a result, in its conversation. Stores identify calls by
/// position, because the call ids of providers may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequencePosition {
    /// The sequence number of the message, from 1.
    pub sequence: u64,
    /// The index of the call (or the result) in that message, from 0.
    pub index: u32,
}

/// The location of the result of a tool call. No variant will be added, because every store has to
/// store every variant.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedResult {
    /// There is no result.
    None,
    /// The result is in a message of the conversation.
    InMessage(SequencePosition),
    /// The result is in the record only.
    Apart(Box<ToolResult>),
}

impl ToolRecord {
    /// Creates the row of a call that was requested and not run.
    pub fn pending(
        call: SequencePosition,
        round_index: u32,
        call_id: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            call,
            round_index,
            call_id: call_id.into(),
            name: name.into(),
            status: ToolStatus::Pending,
            result: RecordedResult::None,
            error: None,
            started_at: None,
            finished_at: None,
            held_until: None,
        }
    }

    /// Returns the time that stores write as the end of the call. This is the time at which the
    /// tool finished or, for an approved call in progress, the time at which the lease on the call
    /// expires.
    pub fn end(&self) -> Option<SystemTime> {
        if self.is_under_way() { self.held_until } else { self.finished_at }
    }

    /// Sets the value that [`end`](Self::end) returned. Set the status and the result first,
    /// because they determine which field the value belongs to.
    pub fn set_end(&mut self, end: Option<SystemTime>) {
        (self.finished_at, self.held_until) =
            if self.is_under_way() { (None, end) } else { (end, None) };
    }

    /// Returns whether the call waits for its approval, or was approved and has no result yet.
    fn is_under_way(&self) -> bool {
        self.status == ToolStatus::PendingApproval && matches!(self.result, RecordedResult::None)
    }
}

impl ToolRecord {
    /// Returns the row that a [`fork_at`](crate::store::Maintenance::fork_at) writes. An approval
    /// belongs to one conversation. Therefore a call that waits for approval becomes a rejected
    /// call in the copy.
    #[must_use]
    pub fn in_copy(mut self) -> Self {
        if self.status == ToolStatus::PendingApproval {
            self.status = ToolStatus::RejectedByApproval;
            self.result = RecordedResult::None;
            (self.error, self.started_at) = (None, None);
            (self.finished_at, self.held_until) = (None, None);
        }
        self
    }
}

/// A row of the record refers to a call or result that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnresolvedRecord {
    /// The message does not exist or has no such call.
    #[error("message {} has no call {}", .0.sequence, .0.index)]
    NoCall(SequencePosition),
    /// The message does not exist or has no such result.
    #[error("message {} has no result {}", .0.sequence, .0.index)]
    NoResult(SequencePosition),
}

impl ToolRecord {
    /// Returns the record of the call, with its arguments and its result from the messages.
    /// `message` returns a message of the conversation by its sequence number.
    ///
    /// # Errors
    ///
    /// [`UnresolvedRecord`], if the call or its result does not exist at the position in the row.
    pub fn resolve(
        &self,
        message: impl Fn(u64) -> Option<Arc<Message>>,
    ) -> Result<ToolInvocation, UnresolvedRecord> {
        let no_call = UnresolvedRecord::NoCall(self.call);
        let asking = message(self.call.sequence).ok_or_else(|| no_call.clone())?;
        let call =
            asking.asked_calls().nth(self.call.index as usize).ok_or_else(|| no_call.clone())?;
        let result = match &self.result {
            RecordedResult::None => None,
            RecordedResult::Apart(result) => Some((**result).clone()),
            RecordedResult::InMessage(position) => {
                let found = message(position.sequence)
                    .and_then(|message| message.results().nth(position.index as usize).cloned());
                Some(found.ok_or(UnresolvedRecord::NoResult(*position))?)
            }
        };
        Ok(ToolInvocation {
            message: asking.id.ok_or(no_call)?,
            sequence: self.call.sequence,
            round_index: self.round_index,
            sequence_index: self.call.index,
            call_id: self.call_id.clone(),
            name: self.name.clone(),
            arguments: call.arguments.clone(),
            status: self.status,
            result,
            error: self.error.clone(),
            started_at: self.started_at,
            finished_at: self.finished_at,
            held_until: self.held_until,
        })
    }
}
