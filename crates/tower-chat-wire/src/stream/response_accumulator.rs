//! Frames of a stream, added up to an answer.

use std::fmt;

use tower_chat_core::{Answer, ChatUpdate};

use super::Frame;
use crate::AnswerError;

/// The frames of one streamed answer of a provider, added up.
///
/// [`BodyWire::accumulator`](crate::body::BodyWire::accumulator) makes one for each answer, and
/// [`updates`](super::updates) drives it. What it adds up to is what a whole answer with the same
/// content would have been. Its memory and its work are in proportion to the bytes of the frames.
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
    /// Adds a frame, and returns the deltas of text, reasoning and calls that are in it.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Refused`], if the service reports an error in it, and
    /// [`AnswerError::Malformed`], if it is no frame of this wire. After an error the accumulator is
    /// of no use.
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError>;

    /// Whether the service has sent the end of the answer and the reason for it.
    fn is_complete(&self) -> bool;

    /// Whether the frame that ends the stream on this wire was pushed: the reader need not wait until
    /// the connection is closed. On wires without such a frame, fields may follow the end of the
    /// answer.
    fn is_last(&self) -> bool {
        false
    }

    /// The text so far.
    fn text(&self) -> String;

    /// The whole answer: its messages and how it ended.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Malformed`], if the frames add up to no answer, and [`AnswerError::Refused`],
    /// if the service reports an error in the whole of it.
    fn finish(self: Box<Self>) -> Result<Answer, AnswerError>;
}
