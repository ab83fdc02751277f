//! What a scripted model client reports by itself.

/// A call that the script does not provide for, or that breaks tower's contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The script has no step for the call.
    #[error("the script has no step for service call {call}; it ended before")]
    Exhausted {
        /// The call's number, from 1.
        call: usize,
    },
    /// `poll_ready` was not polled to readiness on this very clone since its last call.
    #[error(
        "service call {call} was made on a model client that was not ready: poll_ready comes first"
    )]
    NotReady {
        /// The call's number, from 1.
        call: usize,
    },
}
