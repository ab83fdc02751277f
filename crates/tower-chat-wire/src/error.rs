//! What can be wrong with JSON that should be a message.

/// JSON that is not a message of the wire it was read as.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It is no JSON, or not the kind of value that belongs in this place.
    #[error("{what} is not {expected}")]
    Json {
        /// What was read.
        what: &'static str,
        /// What it should be.
        expected: &'static str,
        /// Where in the text, and why.
        source: serde_json::Error,
    },
    /// A field that the wire demands is missing, or holds another kind of value.
    #[error("{what} has no {field}, or one that is not {expected}")]
    Field {
        /// What was read.
        what: &'static str,
        /// The field's name.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The wire has no such role.
    #[error("a message of this wire has no role {role:?}")]
    UnknownRole {
        /// The role as it came.
        role: String,
    },
    /// One message of several is wrong.
    #[error("message {index} cannot be read")]
    InMessage {
        /// Its position among them, from 0.
        index: usize,
        /// What is wrong with it.
        source: Box<WireError>,
    },
}
