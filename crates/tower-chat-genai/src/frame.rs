//! The pieces in which a service sends an answer.

use std::pin::Pin;

use futures_util::Stream;
use tower_chat_core::RawJson;

use crate::{GenAiError, object::Object};

/// One event of a stream, undecoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The name of the event, where the framing has one.
    pub(crate) event: Option<String>,
    /// Its data; JSON, but for marks such as `[DONE]`.
    pub(crate) data: String,
}

/// The events of a stream, up to the end of it or an error.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Result<Frame, GenAiError>> + Send>>;

/// What a service answered.
pub(crate) enum Answer {
    /// All of it.
    Whole(RawJson),
    /// Piece by piece. The first frame has come.
    Streamed(Frames),
}

impl Frame {
    /// The fields of the data.
    pub(crate) fn fields(&self) -> Result<Object, GenAiError> {
        serde_json::from_str(&self.data)
            .map_err(|_| GenAiError::malformed("an event is no JSON object", &self.data))
    }
}
