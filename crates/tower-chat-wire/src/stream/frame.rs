//! The pieces in which a service sends an answer.

/// The data of the event that ends a stream of Chat Completions. Services send it on other wires too,
/// where it says nothing.
pub(crate) const DONE: &str = "[DONE]";

/// One event of a stream, undecoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name of the event, where the framing has one.
    pub event: Option<String>,
    /// Its data; JSON, but for marks such as `[DONE]`.
    pub data: String,
}
