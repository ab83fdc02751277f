//! What a transfer tells its caller while it works.

use tower_chat_core::{BoxError, ConversationKey};

use crate::{Counts, Step, TransferError};

/// What a transfer tells its caller, in this order: how much there is, and of every conversation that
/// it begins and how it ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// How many conversations there are to do in all. It is told again where more are found.
    Total {
        /// The conversations.
        conversations: u64,
    },
    /// A conversation is about to be done. Once the callback has returned, it is.
    Begins {
        /// The conversation.
        key: ConversationKey,
        /// What the conversation consists of, as far as its store says without reading it.
        counts: Counts,
    },
    /// A conversation is done.
    Done(Step),
}

/// The caller's callback. An error that it returns stops the transfer.
pub type Progress<'a> = &'a mut (dyn FnMut(&Event) -> Result<(), BoxError> + Send);

pub(crate) fn tell(progress: Progress<'_>, event: &Event) -> Result<(), TransferError> {
    progress(event).map_err(TransferError::Stopped)
}
