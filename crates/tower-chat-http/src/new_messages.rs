//! Finds the new messages of a request.

use tower_chat_layers::{
    Messages, RunId,
    store::History,
    transcript::{Recognised, TranscriptError, recognise_in},
};

use crate::ErrorResponse;

/// Compares a request with the stored conversation, and returns the new messages or the stored answer.
///
/// # Errors
///
/// A refusal, if the messages contradict the stored conversation, or if there is nothing to answer.
pub(crate) fn new_messages(
    stored: &History,
    sent: &Messages,
    tries_again: bool,
) -> Result<Recognised, ErrorResponse> {
    recognise_in(stored, sent, tries_again).map_err(|error| match error {
        TranscriptError::Diverged { .. } => ErrorResponse::diverged(),
        _ => {
            let message = "the request has no new message: add one";
            ErrorResponse::bad_request(message).with_param("messages")
        }
    })
}

/// Returns the history before a run. A request that names its run contains the input of the run again,
/// which the comparison with its stored messages would remove.
pub(crate) fn before_run(stored: History, run: RunId) -> History {
    let is_of_run = |id: tower_chat_layers::MessageId| id.run == run;
    let first = stored.messages.iter().position(|message| message.id.is_some_and(is_of_run));
    match first {
        Some(first) => History::new(stored.head, stored.messages.take(first)),
        None => stored,
    }
}

#[cfg(test)]
mod tests;
