/// A recording that cannot be parsed. The error must make a test fail, because a skipped recording would
/// not be tested.
#[derive(Debug, thiserror::Error)]
#[error("{source_name}: {problem}")]
pub struct RecordingError {
    /// The file, and the number of the exchange or line.
    pub source_name: String,
    /// A description of the problem.
    pub problem: String,
}

impl RecordingError {
    pub(super) fn new(source_name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { source_name: source_name.into(), problem: problem.into() }
    }
}
