//! What the record knows of calls that were begun before this request.

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

/// What is known of a call that an earlier attempt may have run.
#[derive(Debug, Clone)]
pub(crate) enum CallOutcome {
    NeverStarted,
    /// It may or may not have run.
    Started(Option<SystemTime>),
    /// The same of one that cannot run again, since its arguments were not kept. Without a time
    /// it was never started.
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

    /// What a row of the record says of its call. This is the one reading of a row: the status of a call
    /// that waits for approval says no more than that it waits, whatever has come out of its tool.
    pub(crate) fn of<'r>(row: impl Into<Recorded<'r>>) -> Self {
        let row = row.into();
        match (row.result, row.started_at) {
            (Some(result), _) => Self::Finished(Box::new((result.clone(), row.report()))),
            (None, Some(_)) => Self::Started(row.started_at),
            (None, None) => Self::NeverStarted,
        }
    }
}

/// What a row of the record says of a call, with the result if it is in no message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded<'r> {
    status: ToolStatus,
    result: Option<&'r ToolResult>,
    error: Option<&'r String>,
    started_at: Option<SystemTime>,
    finished_at: Option<SystemTime>,
}

impl Recorded<'_> {
    /// Whether the call counts among the tool calls that its run has made.
    pub(crate) fn has_run(&self) -> bool {
        self.started_at.is_some() || self.status == ToolStatus::RejectedArguments
    }

    /// What the row says beside the result.
    pub(crate) fn report(&self) -> ToolReport {
        let is_error = self.result.is_some_and(|result| result.is_error);
        let status = match (self.status, self.started_at, is_error) {
            // Its stored arguments are not those that were approved.
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

/// The calls that wait for approval and were begun or refused before, as the record said when the run began.
#[derive(Debug, Default)]
pub(super) struct PriorAttempts {
    pub(super) starts: HashMap<SequencePosition, SystemTime>,
    calls: HashMap<CallOfRun, CallOutcome>,
    /// Calls that the record has closed with a result, although no message holds it.
    with_result: HashSet<CallOfRun>,
    /// Calls that the record has closed without a result, since they wait in the conversation of
    /// which this one is a copy.
    copied: HashSet<CallOfRun>,
    /// Until when other runs hold calls.
    held: HashMap<CallOfRun, SystemTime>,
}

impl PriorAttempts {
    /// What is known of a call, if it was begun.
    pub(super) fn call(&self, call: CallOfRun) -> Option<CallOutcome> {
        self.calls.get(&call).cloned()
    }

    /// Whether a call can still be decided about at a time.
    pub(super) fn waiting(&self, call: CallOfRun, now: SystemTime) -> Waiting {
        match self.held.get(&call) {
            _ if self.copied.contains(&call) => Waiting::InOriginal,
            _ if self.with_result.contains(&call) => Waiting::Answered,
            Some(until) if now < *until => Waiting::Held(*until),
            Some(_) | None => Waiting::Open,
        }
    }
}

/// Whether a call that waits for approval can still be decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Open,
    /// It was copied while it waited, and waits in the conversation of which this one is a copy.
    InOriginal,
    /// The record has closed it with a result, although no message holds the result.
    Answered,
    /// A run of another process may be at work on it until then.
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
            // The last row of a call counts: an outcome in the outbox comes after its claim.
            match call.held_until {
                Some(until) => _ = begun.held.insert(of_run, until),
                None => _ = begun.held.remove(&of_run),
            }
            begun.calls.insert(of_run, CallOutcome::of(&call));
        }
        begun
    }
}
