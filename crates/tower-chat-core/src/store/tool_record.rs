//! What a write says of tool calls.

use std::{sync::Arc, time::SystemTime};

use crate::{Message, ToolInvocation, ToolResult, ToolStatus};

/// What a write says of one tool call: a row of the record, which replaces the former row of the
/// call before.
///
/// Call and result stand in messages; the record refers to them and copies neither. A result that
/// is in no message, because it was left out of the history, is in the record itself.
///
/// A call that was asked for, and the row that replaces it once the call has run:
///
/// ```
/// use tower_chat_core::{
///     Message, MessageId, RunId, ToolCall, ToolResult, ToolStatus,
///     store::{SequencePosition, author::{RecordedResult, ToolRecord}},
/// };
///
/// // Message 1 has the call, message 2 its result.
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
    /// Which of its turn's rounds the call belongs to, from 0.
    pub round_index: u32,
    /// The id by which the model knows the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// How it went.
    pub status: ToolStatus,
    /// Where its result is.
    pub result: RecordedResult,
    /// What went wrong, in words for people.
    pub error: Option<String>,
    /// When the tool was started, to the millisecond.
    pub started_at: Option<SystemTime>,
    /// When it had finished, to the millisecond.
    pub finished_at: Option<SystemTime>,
    /// Until when a run that is at work on the call holds it, to the millisecond, if the call was approved:
    /// the run renews this time while its tool runs. A call that has a result is held by no run.
    pub held_until: Option<SystemTime>,
}

/// Names a tool call, or a result, by where it stands; the ids that providers give are no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequencePosition {
    /// The number of the message in its conversation, from 1.
    pub sequence: u64,
    /// Its position among the calls (or the results) of that message, from 0.
    pub index: u32,
}

/// Where the result of a tool call is. Every store keeps every variant, so there will be no others.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedResult {
    /// Nowhere.
    None,
    /// In a message of the conversation.
    InMessage(SequencePosition),
    /// In the record alone.
    Apart(Box<ToolResult>),
}

impl ToolRecord {
    /// The record of a call of which nothing else is known yet.
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

    /// The time that a store keeps of the end of the call: when it had finished or, of an approved call that
    /// is under way, until when it is held.
    pub fn end(&self) -> Option<SystemTime> {
        if self.is_under_way() { self.held_until } else { self.finished_at }
    }

    /// Sets the time that [`end`](Self::end) had returned. The status and the result come before it.
    pub fn set_end(&mut self, end: Option<SystemTime>) {
        (self.finished_at, self.held_until) =
            if self.is_under_way() { (None, end) } else { (end, None) };
    }

    /// Whether it waits for its approval or its outcome.
    fn is_under_way(&self) -> bool {
        self.status == ToolStatus::PendingApproval && matches!(self.result, RecordedResult::None)
    }
}

impl ToolRecord {
    /// The row as a [`fork`](crate::store::HistoryStore::fork) copies it. An approval belongs to one
    /// conversation: in the copy, a call that waits for approval is one that was not approved.
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

/// Why a row of the record says nothing: what it refers to is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnresolvedRecord {
    /// No such message, or it has no such call.
    #[error("message {} holds no call {}", .0.sequence, .0.index)]
    NoCall(SequencePosition),
    /// No such message, or it has no such result.
    #[error("message {} holds no result {}", .0.sequence, .0.index)]
    NoResult(SequencePosition),
}

impl ToolRecord {
    /// The whole of what is known of the call, with what its messages hold. `message` finds a
    /// message of the conversation by its number.
    ///
    /// # Errors
    ///
    /// [`UnresolvedRecord`], if the call or its result is not where the row says.
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
