//! The pieces in which a service sends an answer.

use super::limits::LimitExceeded;

/// One event of a stream, undecoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name of the event, where the framing has one.
    pub event: Option<String>,
    /// Its data; JSON, but for marks such as `[DONE]`.
    pub data: String,
}

/// How the events of a stream are told apart.
pub trait Framing: Send + 'static {
    /// Why bytes are no such stream.
    type Error;

    /// The events that some more bytes complete.
    ///
    /// # Errors
    ///
    /// If the bytes are no such stream, or exceed a limit. Nothing comes after an error.
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, Self::Error>;

    /// What the end of the stream completes.
    fn end(&mut self) -> Option<Frame> {
        None
    }
}

impl From<LimitExceeded> for super::event_stream::DamagedStream {
    fn from(error: LimitExceeded) -> Self {
        Self::Limit(error)
    }
}
