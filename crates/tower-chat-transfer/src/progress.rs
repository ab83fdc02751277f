//! The events of a transfer, which it passes to a callback.

use tower_chat_core::{BoxError, ConversationKey};

use crate::{Counts, Step, TransferError};

/// An event of a transfer. The total is reported first, then the beginning and the end of each
/// conversation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The number of conversations. It is reported again if more are found.
    Total {
        /// The conversations.
        conversations: u64,
    },
    /// A conversation is about to be transferred. The transfer waits until the callback has
    /// returned.
    Begins {
        /// The conversation.
        key: ConversationKey,
        /// The counts of the conversation, as far as its store knows them without reading it.
        counts: Counts,
    },
    /// A conversation is finished.
    Done(Step),
}

/// The callback of a transfer. If it returns an error, the transfer stops.
pub type Progress<'a> = &'a mut (dyn FnMut(&Event) -> Result<(), BoxError> + Send);

pub(crate) fn tell(progress: Progress<'_>, event: &Event) -> Result<(), TransferError> {
    progress(event).map_err(TransferError::Stopped)
}
