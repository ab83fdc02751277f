//! What of a request is new in its conversation.

use tower_chat_layers::{
    Messages,
    store::History,
    transcript::{Recognised, TranscriptError, recognise_in},
};

use crate::Refusal;

/// What a request asks for, by what of its messages is stored already.
///
/// # Errors
///
/// A refusal, if the messages contradict what is stored, or there is nothing to answer.
pub(crate) fn new_messages(
    stored: &History,
    sent: &Messages,
    tries_again: bool,
) -> Result<Recognised, Refusal> {
    recognise_in(stored, sent, tries_again).map_err(|error| match error {
        TranscriptError::Diverged { .. } => Refusal::diverged(),
        _ => {
            let message = "the request has no message that is new: add one";
            Refusal::bad_request(message).with_param("messages")
        }
    })
}

#[cfg(test)]
mod tests;
