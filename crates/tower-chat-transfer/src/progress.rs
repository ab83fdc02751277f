//! The events that a transfer passes to its callback.

use tower_chat_core::{BoxError, ConversationKey};

use crate::{Counts, TransferError, TransferStep};

/// An event of a transfer. The total is reported first, then the beginning and the end of each
/// conversation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The number of conversations to transfer. An import reports the number of conversations in
    /// the file, including those that are not selected. A deletion reports a larger number when it
    /// finds further conversations.
    Total {
        /// The number of conversations.
        conversations: u64,
    },
    /// The transfer of a conversation begins. The transfer continues when the callback has
    /// returned.
    Begins {
        /// The conversation.
        key: ConversationKey,
        /// The counts of the conversation. Only a deletion sets these counts: the counts that the
        /// store has recorded for the conversation, and the number of its tool calls. Other
        /// transfers report 0, because they have not read the conversation yet.
        counts: Counts,
    },
    /// A conversation is finished, or refused.
    Done(TransferStep),
}

/// The callback of a transfer. If it returns an error, the transfer stops.
pub type Progress<'a> = &'a mut (dyn FnMut(&Event) -> Result<(), BoxError> + Send);

pub(crate) fn report(progress: Progress<'_>, event: &Event) -> Result<(), TransferError> {
    progress(event).map_err(TransferError::Stopped)
}
