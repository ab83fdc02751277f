//! A frame of a streamed answer.

/// The data of the event that ends a stream of Chat Completions. Some services also send it in
/// streams of other APIs, which ignore it.
pub(crate) const DONE: &str = "[DONE]";

/// One event of a stream, before it is parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name of the event, if the format of the stream has names of events.
    pub event: Option<String>,
    /// The data of the event: JSON, or a marker such as `[DONE]`.
    pub data: String,
}
