//! The records of a conversation, which a transfer reads from the source one after the other: runs,
//! messages, rows of tool calls (one for each call), and the open run. The messages of an open run
//! (*staged* messages) are not part of the history yet. All other messages are *visible*.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    Message, PersistenceMode, format,
    store::{Description, HistorySummary, OpenRun, Parent, RunSummary, author::ToolRecord},
};

use crate::Counts;

/// The data of a conversation that are not in its records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Beginning {
    pub(crate) created_at: SystemTime,
    pub(crate) last_active_at: SystemTime,
    /// The number of runs, including the open run, and not including discarded runs.
    pub(crate) runs: u64,
    /// The mode of the most recent run that has a mode.
    pub(crate) last_mode: Option<PersistenceMode>,
    pub(crate) service_id: Option<Arc<str>>,
    /// The number of pruned messages.
    pub(crate) pruned: u64,
    /// The sequence number of the last visible message.
    pub(crate) visible: u64,
    pub(crate) description: Description,
    pub(crate) parent: Option<Parent>,
}

/// A record of a conversation.
///
/// The records have this order:
///
/// 1. the runs;
/// 2. the visible messages, each followed by the rows whose result it contains, and by the rows
///    without a result whose call it contains;
/// 3. the rows whose result is in no message;
/// 4. the summaries of the first messages;
/// 5. the open run, its staged messages, and their rows.
///
/// The `number` of a message is its sequence number in the source. The range of a summary is in these
/// numbers too.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Run(RunSummary),
    Message { number: u64, message: Arc<Message>, is_staged: bool },
    Tool { row: ToolRecord, is_staged: bool },
    Summary(HistorySummary),
    OpenRun(OpenRun),
}

impl Record {
    /// Adds the record to the counts. Returns the size of a message in stored form, in bytes.
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
            Self::Summary(_) | Self::OpenRun(_) => {}
        }
        0
    }
}
