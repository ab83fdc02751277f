//! The errors that a scripted model client returns for a wrong use.

/// The error of a call for which the script has no step, or that violates the contract of
/// `tower::Service`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The script has no step for the call.
    #[error("the script has no step for service call {call}: add one")]
    Exhausted {
        /// The number of the call, from 1.
        call: usize,
    },
    /// The call was made on a clone whose `poll_ready` had not returned `Ready` since the clone's
    /// previous call.
    #[error(
        "service call {call} was made on a model client that was not ready: await poll_ready before each call"
    )]
    NotReady {
        /// The number of the call, from 1.
        call: usize,
    },
}
