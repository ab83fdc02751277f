//! The trait of the accumulators of all wires.

use std::fmt;

use tower_chat_core::{Answer, ChatUpdate};

use super::Frame;
use crate::AnswerError;

/// An accumulator of the frames of one streamed answer.
///
/// [`BodyWire::accumulator`](crate::body::BodyWire::accumulator) creates one for each answer, and
/// [`updates`](super::updates) calls it. The result is equal to a whole answer with the same content.
/// The time and the memory are linear in the bytes of the frames.
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
    /// Adds a frame, and returns the deltas of text, reasoning and calls in it.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Refused`], if the service reports an error in the frame; [`AnswerError::Malformed`], if
    /// the frame does not belong to this wire. The accumulator cannot be used after an error.
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError>;

    /// Returns whether the answer is complete: the service has sent its finish reason, its end, or both, as
    /// the wire requires.
    fn is_complete(&self) -> bool;

    /// Returns whether the frame that ends the stream on this wire was added. The reader then need not wait
    /// until the connection closes. Always `false` on wires without such a frame, where fields may follow the
    /// end of the answer.
    fn is_last(&self) -> bool {
        false
    }

    /// Returns the accumulated text.
    fn text(&self) -> String;

    /// Returns the whole answer: its messages and its finish.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Malformed`], if the frames do not make an answer; [`AnswerError::Refused`], if the
    /// answer as a whole reports an error.
    fn finish(self: Box<Self>) -> Result<Answer, AnswerError>;
}
