//! What a service answered.

use std::pin::Pin;

use futures_util::Stream;
use tower_chat_wire::{AnswerError, stream::Frame};

/// The events of a stream, up to the end of it or an error.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Result<Frame, AnswerError>> + Send>>;

/// What a service answered.
pub(crate) enum Answer {
    /// All of it, as text.
    Whole(String),
    /// Frame by frame. The first was received already.
    Streamed(Frames),
}
