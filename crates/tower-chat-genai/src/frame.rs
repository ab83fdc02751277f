//! The events of a stream, and what they hold.

use std::pin::Pin;

use futures_util::Stream;
use tower_chat_core::RawJson;
pub(crate) use tower_chat_wire::stream::Frame;

use crate::{GenAiError, object::Object};

/// The events of a stream, up to the end of it or an error.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Result<Frame, GenAiError>> + Send>>;

/// What a service answered.
pub(crate) enum Answer {
    /// All of it.
    Whole(RawJson),
    /// Piece by piece. The first frame has come.
    Streamed(Frames),
}

/// The fields of an event's data.
pub(crate) fn fields(frame: &Frame) -> Result<Object, GenAiError> {
    serde_json::from_str(&frame.data)
        .map_err(|_| GenAiError::malformed("an event is no JSON object", &frame.data))
}
