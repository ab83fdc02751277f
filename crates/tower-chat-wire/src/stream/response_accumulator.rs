//! The trait that the accumulators for all providers implement.
//!
//! A frame is one event of a streamed answer.

use std::fmt;

use tower_chat_core::{Answer, ChatUpdate};

use super::Frame;
use crate::AnswerError;

/// Accumulates the frames of one streamed answer.
///
/// [`BodyWire::accumulator`](crate::body::BodyWire::accumulator) creates an accumulator for each
/// answer, and [`updates`](super::updates) passes the frames to it. The result is equal to the
/// result of reading a whole answer with the same content. Time and memory are linear in the bytes
/// of the frames.
///
/// ```
/// use tower_chat_wire::{body::BodyWire, stream::Frame};
/// let mut answer = BodyWire::Ollama.accumulator();
/// for line in [
///     r#"{"message":{"role":"assistant","content":"It "}}"#,
///     r#"{"message":{"content":"is."},"done":true,"done_reason":"stop"}"#,
/// ] {
///     answer.push(&Frame { event: None, data: line.to_owned() })?;
/// }
/// assert!(answer.is_complete());
/// assert_eq!(answer.finish()?.text(), "It is.");
/// # Ok::<(), tower_chat_wire::AnswerError>(())
/// ```
pub trait ResponseAccumulator: fmt::Debug + Send {
    /// Adds a frame, and returns the deltas of text, reasoning and calls that the frame contains.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Refused`], if the service reports an error in the frame.
    /// [`AnswerError::Malformed`], if the frame does not have the format of this API. The
    /// accumulator cannot be used after an error.
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError>;

    /// Returns whether the answer is complete. Depending on the API, an answer is complete when the
    /// service has sent the finish reason, the end of the stream, or both.
    fn is_complete(&self) -> bool;

    /// Returns whether the last added frame ends the stream. The reader then need not wait until
    /// the connection is closed. Always `false` for an API without a frame that ends the stream,
    /// because more fields may follow a complete answer.
    fn is_last(&self) -> bool {
        false
    }

    /// Returns the accumulated text.
    fn text(&self) -> String;

    /// Returns the whole answer: its messages, and its [`Finish`](tower_chat_core::Finish).
    ///
    /// # Errors
    ///
    /// [`AnswerError::Malformed`], if the frames together are not a valid answer.
    /// [`AnswerError::Refused`], if the whole answer reports an error.
    fn finish(self: Box<Self>) -> Result<Answer, AnswerError>;
}
