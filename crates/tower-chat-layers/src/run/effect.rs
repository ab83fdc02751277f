//! The consequence of an event: the contents of a write.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    EndedBy, Message,
    store::author::{Close, ToolRecord},
};

use super::recording::Adopted;
use crate::tool::{CallOfRun, ToolOutcome};

/// The consequence of an event.
pub(super) enum Effect {
    Nothing,
    Write(Box<RunWrite>),
    /// Leaves the run open for a later attempt. Only the lease is written, with this time as its end.
    Leave(Option<SystemTime>),
}

/// The contents of one write.
#[derive(Default)]
pub(super) struct RunWrite {
    pub(super) messages: Vec<Arc<Message>>,
    /// Results that no service call has sent.
    pub(super) left_out: Vec<Arc<Message>>,
    /// The history owner, if an answer has named one.
    pub(super) adopted: Option<Adopted>,
    /// The messages are the whole run, including its final answer.
    pub(super) is_whole_run: bool,
    /// Calls whose tools are about to start.
    pub(super) starts: Vec<CallOfRun>,
    /// The outcomes of calls whose results are not part of a message yet.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// How the write ends a journaled run.
    pub(super) close: Option<Close>,
    /// The write is the last of its run, which ended intentionally.
    pub(super) ends_run: bool,
    /// The reason for the end of the run, if that is not the last answer of the model.
    pub(super) ended_by: Option<EndedBy>,
    /// The last answer of the run, if it was stored before.
    pub(super) last_response: Vec<Arc<Message>>,
    /// Rows of the record that do not result from the other fields.
    pub(super) rows: Vec<ToolRecord>,
    /// Messages and rows are in the form in which they are stored, and the store numbers the messages.
    pub(super) is_as_stored: bool,
    /// The run does not await the outcome, or the outcome cannot end the run. The write is submitted
    /// again with the next one, because the store may have refused it.
    pub(super) is_unsettled: bool,
}

impl RunWrite {
    pub(super) fn messages(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, ..Self::default() }
    }
}
