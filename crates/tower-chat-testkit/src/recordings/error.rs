/// The error of a recording that cannot be parsed. A test must fail with this error instead of
/// skipping the recording.
#[derive(Debug, thiserror::Error)]
#[error("{source_name}: {problem}")]
pub struct RecordingError {
    /// The file, and the number of the exchange or the line in the file.
    pub source_name: String,
    /// A description of the problem.
    pub problem: String,
}

impl RecordingError {
    pub(super) fn new(source_name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { source_name: source_name.into(), problem: problem.into() }
    }
}
