//! The pieces in which a service sends an answer.

/// One event of a stream, undecoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name of the event, where the framing has one.
    pub event: Option<String>,
    /// Its data; JSON, but for marks such as `[DONE]`.
    pub data: String,
}
