//! The state of calls that an earlier attempt may have started, as the record of tool calls
//! contains it.

use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

use tower_chat_core::{
    ToolInvocation, ToolResult, ToolStatus,
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};

use crate::tool::{CallOfRun, ResultSource, ToolReport};

/// The recorded state of a call whose tool an earlier attempt may have run.
#[derive(Debug, Clone)]
pub(crate) enum CallOutcome {
    /// The tool was not started, and there is no result.
    NeverStarted,
    /// The tool was started, and no outcome is recorded.
    Started(Option<SystemTime>),
    /// No result is recorded, and the call cannot run again, because a hook did not allow its
    /// arguments to be stored. Contains the time at which the tool was started.
    WithoutArguments(Option<SystemTime>),
    Finished(Box<(ToolResult, ToolReport)>),
}

impl CallOutcome {
    pub(crate) fn lose_arguments(&mut self) {
        match self {
            Self::NeverStarted => *self = Self::WithoutArguments(None),
            Self::Started(started_at) => *self = Self::WithoutArguments(*started_at),
            Self::WithoutArguments(_) | Self::Finished(..) => {}
        }
    }

    /// Returns the state of a call from its row. The status of the row is ignored, because a call
    /// that waits for approval has the same status before and after its tool runs.
    pub(crate) fn of<'r>(row: impl Into<Recorded<'r>>) -> Self {
        let row = row.into();
        match (row.result, row.started_at) {
            (Some(result), _) => Self::Finished(Box::new((result.clone(), row.report()))),
            (None, Some(_)) => Self::Started(row.started_at),
            (None, None) => Self::NeverStarted,
        }
    }
}

/// The row of a call in the record. `result` is `None` if a message contains the result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded<'r> {
    status: ToolStatus,
    result: Option<&'r ToolResult>,
    error: Option<&'r String>,
    started_at: Option<SystemTime>,
    finished_at: Option<SystemTime>,
}

impl Recorded<'_> {
    pub(crate) fn has_run(&self) -> bool {
        self.started_at.is_some() || self.status == ToolStatus::RejectedArguments
    }

    pub(crate) fn report(&self) -> ToolReport {
        let is_error = self.result.is_some_and(|result| result.is_error);
        let status = match (self.status, self.started_at, is_error) {
            // The stored arguments differ from the approved arguments.
            (ToolStatus::PendingApproval, None, _) => ToolStatus::RejectedArguments,
            (ToolStatus::PendingApproval, Some(_), true) => ToolStatus::Error,
            (ToolStatus::PendingApproval, Some(_), false) => ToolStatus::Ok,
            (status, ..) => status,
        };
        ToolReport {
            status,
            error: self.error.cloned(),
            started_at: self.started_at,
            finished_at: self.finished_at,
            source: ResultSource::Record,
        }
    }
}

impl<'r> From<&'r ToolRecord> for Recorded<'r> {
    fn from(row: &'r ToolRecord) -> Self {
        Self {
            status: row.status,
            result: match &row.result {
                RecordedResult::Apart(result) => Some(result),
                RecordedResult::None | RecordedResult::InMessage(_) => None,
            },
            error: row.error.as_ref(),
            started_at: row.started_at,
            finished_at: row.finished_at,
        }
    }
}

impl<'r> From<&'r ToolInvocation> for Recorded<'r> {
    fn from(call: &'r ToolInvocation) -> Self {
        Self {
            status: call.status,
            result: call.result.as_ref(),
            error: call.error.as_ref(),
            started_at: call.started_at,
            finished_at: call.finished_at,
        }
    }
}

/// The recorded state, when the run began, of calls that wait for approval in the history. Contains
/// only calls whose tool was started, and calls whose row contains a result or is closed
/// ([`ToolStatus::is_open`] returns `false`).
#[derive(Debug, Default)]
pub(crate) struct PriorAttempts {
    pub(super) starts: HashMap<SequencePosition, SystemTime>,
    calls: HashMap<CallOfRun, CallOutcome>,
    /// The calls with closed rows and a result that no message contains.
    with_result: HashSet<CallOfRun>,
    /// The calls with closed rows without a result, because this conversation is a copy. The calls
    /// still wait for approval in the original.
    copied: HashSet<CallOfRun>,
    /// The ends of the claims of other runs.
    held: HashMap<CallOfRun, SystemTime>,
}

impl PriorAttempts {
    /// Returns the outcome that the record contained, when the run began, for a call that waits for
    /// approval. `None` if the tool was not started and there was no result.
    pub(crate) fn call(&self, call: CallOfRun) -> Option<CallOutcome> {
        self.calls.get(&call).cloned()
    }

    pub(super) fn waiting(&self, call: CallOfRun, now: SystemTime) -> Waiting {
        match self.held.get(&call) {
            _ if self.copied.contains(&call) => Waiting::InOriginal,
            _ if self.with_result.contains(&call) => Waiting::Answered,
            Some(until) if now < *until => Waiting::Held(*until),
            Some(_) | None => Waiting::Open,
        }
    }
}

/// Whether a call still waits for a decision, if the history contains its approval request without
/// a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Open,
    /// This conversation is a copy, and the call waits for approval in the original conversation.
    InOriginal,
    /// The record contains a result for the call, although no message contains it.
    Answered,
    /// Another run has claimed the call until this time, and may be executing its tool.
    Held(SystemTime),
}

impl FromIterator<ToolInvocation> for PriorAttempts {
    fn from_iter<I: IntoIterator<Item = ToolInvocation>>(waiting: I) -> Self {
        let mut begun = Self::default();
        for call in waiting {
            if !call.status.is_open() && call.result.is_some() {
                begun.with_result.insert((call.message, call.sequence_index as usize));
                continue;
            }
            if call.status == ToolStatus::RejectedByApproval {
                begun.copied.insert((call.message, call.sequence_index as usize));
                continue;
            }
            if call.started_at.is_none() && call.result.is_none() {
                continue;
            }
            let position = SequencePosition { sequence: call.sequence, index: call.sequence_index };
            begun.starts.extend(call.started_at.map(|started_at| (position, started_at)));
            let of_run = (call.message, call.sequence_index as usize);
            // The last row of a call replaces earlier ones, because the outbox may contain an
            // outcome that follows the claim in the store.
            match call.held_until {
                Some(until) => _ = begun.held.insert(of_run, until),
                None => _ = begun.held.remove(&of_run),
            }
            begun.calls.insert(of_run, CallOutcome::of(&call));
        }
        begun
    }
}
