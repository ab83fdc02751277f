//! The errors of a scripted model client itself.

/// A call for which the script has no step, or that violates the contract of tower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The script has no step for the call.
    #[error("the script has no step for service call {call}: add one")]
    Exhausted {
        /// The number of the call, from 1.
        call: usize,
    },
    /// `poll_ready` was not polled to readiness on this clone since its previous call.
    #[error(
        "service call {call} was made on a model client that was not ready: await poll_ready before each call"
    )]
    NotReady {
        /// The number of the call, from 1.
        call: usize,
    },
}
