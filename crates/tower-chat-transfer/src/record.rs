//! What a conversation consists of, one record after the other.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    Message, PersistenceMode, format,
    store::{Description, OpenRun, RunSummary, author::ToolRecord},
};

use crate::Counts;

/// What a conversation has besides its records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Beginning {
    pub(crate) created_at: SystemTime,
    pub(crate) last_active_at: SystemTime,
    pub(crate) runs: u64,
    pub(crate) last_mode: Option<PersistenceMode>,
    pub(crate) service_id: Option<Arc<str>>,
    /// How many messages were pruned.
    pub(crate) pruned: u64,
    /// The number of the last message that readers see.
    pub(crate) visible: u64,
    pub(crate) description: Description,
}

/// One record of a conversation. They come in this order: its runs; its messages, and after each
/// the rows of the record of tool calls that are complete with it; and what its open run has staged,
/// likewise.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Run(RunSummary),
    Message { number: u64, message: Arc<Message>, is_staged: bool },
    Tool { row: ToolRecord, is_staged: bool },
    OpenRun(OpenRun),
}

impl Record {
    /// Counts the record; returns the bytes of a message.
    pub(crate) fn count(&self, counts: &mut Counts) -> usize {
        match self {
            Self::Run(_) => counts.runs += 1,
            Self::Message { message, .. } => {
                let bytes = format::encode(message).len();
                counts.messages += 1;
                counts.bytes += bytes as u64;
                return bytes;
            }
            Self::Tool { .. } => counts.tool_calls += 1,
            Self::OpenRun(_) => {}
        }
        0
    }
}
