//! A frame of a streamed answer.

/// The data of the event that ends a stream of Chat Completions. Some services send it on other wires
/// too, where it has no meaning.
pub(crate) const DONE: &str = "[DONE]";

/// One event of a stream, not yet parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name of the event, if the framing has names.
    pub event: Option<String>,
    /// The data of the event: JSON, or a mark such as `[DONE]`.
    pub data: String,
}
