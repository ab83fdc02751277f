/// A recording that is not understood. A test fails on it: a recording that is left out silently
/// would not be tested.
#[derive(Debug, thiserror::Error)]
#[error("{source_name}: {problem}")]
pub struct RecordingError {
    /// The file, and within it the number of the exchange or line.
    pub source_name: String,
    /// What is not understood.
    pub problem: String,
}

impl RecordingError {
    pub(super) fn new(source_name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { source_name: source_name.into(), problem: problem.into() }
    }
}
