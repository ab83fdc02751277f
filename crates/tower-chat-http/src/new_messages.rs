//! Finds the new messages of a request.

use tower_chat_layers::{RunId, store::History, transcript::TranscriptError};

use crate::ErrorResponse;

/// Returns the error response for a request that differs from the stored conversation, or contains
/// no new message.
pub(crate) fn refusal(error: &TranscriptError) -> ErrorResponse {
    match error {
        TranscriptError::Diverged { .. } => ErrorResponse::diverged(),
        _ => {
            let message = "the request has no new message: add one";
            ErrorResponse::bad_request(message).with_param("messages")
        }
    }
}

/// Returns the part of the history that precedes a run, so that a comparison with this history does
/// not remove the input of the run from a retry with the run id.
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
