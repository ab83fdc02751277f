//! The consequence of an event: the contents of a write.

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

/// The consequence of an event.
pub(super) enum Effect {
    Nothing,
    Write(Box<RunWrite>),
    /// Adds the messages of an answered service call to the run log. The write at the end of the run
    /// stores them.
    Hold(HeldCall),
    /// Leaves the run open for a later attempt. Only the lease is written, with this end.
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
    /// Messages with results at the end of the run that no service call has sent. These results are
    /// stored in the record, not as messages.
    pub(super) left_out: Vec<Arc<Message>>,
    /// The history owner, if an answer has named one.
    pub(super) adopted: Option<Adopted>,
    /// Whether the messages are the whole run, including its final answer.
    pub(super) is_whole_run: bool,
    /// Calls whose tools are about to start.
    pub(super) starts: Vec<CallOfRun>,
    /// The outcomes of calls whose results are not part of a message yet.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// The end of a journaled run that the write causes.
    pub(super) close: Option<Close>,
    /// Whether the write is the final one of its run and the run ended intentionally.
    pub(super) ends_run: bool,
    /// The reason for the end of the run, if that is not the last answer of the model.
    pub(super) ended_by: Option<EndedBy>,
    /// The last answer of the run, if it was stored before.
    pub(super) last_response: Vec<Arc<Message>>,
    /// Rows of the record that do not result from the other fields.
    pub(super) rows: Vec<ToolRecord>,
    /// Whether messages and rows already are in their stored form. The store then numbers the messages.
    pub(super) is_as_stored: bool,
    /// Whether the write must be submitted again with the next one. The write may have been refused
    /// without an effect on the run: the run does not await its outcome, or ignores a failure.
    pub(super) is_unsettled: bool,
}

impl RunWrite {
    pub(super) fn messages(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, ..Self::default() }
    }
}
