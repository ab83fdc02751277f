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
    /// Adds the messages of an answered service call to the run log, from which the write at the
    /// end of the run stores these messages.
    Hold(HeldCall),
    /// Leaves the run open for a later attempt. The write adds no messages, and sets the end of the
    /// lease to this value.
    Leave(LeaseEnd),
}

/// The messages of an answered service call: its new inputs and its answer.
pub(super) struct HeldCall {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) adopted: Adopted,
}

/// The contents of one write.
#[derive(Default)]
pub(super) struct RunWrite {
    pub(super) messages: Vec<Arc<Message>>,
    /// The messages at the end of the run whose results no service call has sent. The write stores
    /// these results in the record, but does not store the messages.
    pub(super) left_out: Vec<Arc<Message>>,
    /// The history owner after the write's answer. `None` if the write contains no answer.
    pub(super) adopted: Option<Adopted>,
    /// Whether the messages are the whole run, including its final answer.
    pub(super) is_whole_run: bool,
    /// Calls whose tools are about to start.
    pub(super) starts: Vec<CallOfRun>,
    /// The outcomes of calls whose results are not part of a message yet.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// Whether the write commits or discards a journaled run. `None` if the run remains open.
    pub(super) close: Option<Close>,
    /// Whether the write is the final one of its run and the run ended intentionally.
    pub(super) ends_run: bool,
    /// The reason why the run ends, unless the run ends because the model has given its final
    /// answer.
    pub(super) ended_by: Option<EndedBy>,
    /// The last answer of the run, if an earlier write has stored this answer.
    pub(super) last_response: Vec<Arc<Message>>,
    /// Rows of the record in addition to those that are built from the other fields.
    pub(super) rows: Vec<ToolRecord>,
    /// Whether messages and rows already have their stored form. In this case, the store sets the
    /// ids of the messages.
    pub(super) is_as_stored: bool,
    /// Whether this write must be submitted again together with the next write. The run does not
    /// await the outcome of such a write, or only logs a failure, and therefore continues even if
    /// the store has refused the write.
    pub(super) is_unsettled: bool,
}

impl RunWrite {
    pub(super) fn messages(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, ..Self::default() }
    }
}
