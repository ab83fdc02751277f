//! The effect of an event on a run, and the contents of a write.

use std::sync::Arc;

use tower_chat_core::{
    EndedBy, Message,
    store::{
        LeaseEnd,
        author::{Close, ToolRecord},
    },
};

use super::recording::Adopted;
use crate::tool::{CallOfRun, ToolOutcome};

/// The effect of an event on a run.
pub(super) enum Effect {
    Nothing,
    Write(Box<RunWrite>),
    /// Adds the messages of an answered service call (its new inputs and its answer) to the run
    /// log, for the write at the end of the run.
    AddUnsubmitted(Vec<Arc<Message>>, Adopted),
    /// Leaves the run open for a later attempt, and sets the end of the lease.
    Leave(LeaseEnd),
}

/// The contents of one write.
#[derive(Default)]
pub(super) struct RunWrite {
    pub(super) messages: Vec<Arc<Message>>,
    /// The messages at the end of the run whose results no service call has sent, and which are
    /// stored only as results in the record.
    pub(super) left_out: Vec<Arc<Message>>,
    /// The history owner after the answer in the write.
    pub(super) adopted: Option<Adopted>,
    /// Calls whose tools are about to start.
    pub(super) starts: Vec<CallOfRun>,
    /// The outcomes of calls whose results are not part of a message yet.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// `None` if the run remains open.
    pub(super) close: Option<Close>,
    /// Whether the write is the final one of a run that ended intentionally.
    pub(super) ends_run: bool,
    /// The reason for the end of the run. `None` if the model has given its final answer.
    pub(super) ended_by: Option<EndedBy>,
    /// The last answer of the run, if an earlier write has stored it.
    pub(super) last_response: Vec<Arc<Message>>,
    /// Rows that are not built from the other fields.
    pub(super) rows: Vec<ToolRecord>,
    /// Whether messages and rows already have their stored form.
    pub(super) is_as_stored: bool,
    /// Whether this write must be submitted again with the next one, because the run continues even
    /// if the store has refused this write.
    pub(super) is_unsettled: bool,
}

impl RunWrite {
    pub(super) fn messages(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, ..Self::default() }
    }
}
