//! The errors of update logs.
//!
//! An *attempt* is one execution of a run. If the run has failed or its process died, its request
//! can be sent again, which begins the next attempt.

use tower_chat_layers::{BoxError, SharedError};

use super::{RunKey, RunState, UpdatePosition};

/// An operation of an update log failed.
///
/// ```
/// use tower_chat_delivery::UpdateLogError;
/// let error = UpdateLogError::backend("read updates", true, "connection reset");
/// assert!(error.is_retryable());
/// assert_eq!(error.to_string(), "the update log failed to read updates");
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateLogError {
    /// The attempt may not write, because a later attempt has begun, the run was closed in the log,
    /// or the updates of the run were erased or have expired.
    #[error(
        "attempt {attempt} at {run} cannot write to the update log, because {found}: begin a later attempt"
    )]
    NotOwner {
        /// The run.
        run: RunKey,
        /// The attempt that tried to write.
        attempt: u32,
        /// The state of the run in the log.
        found: RunState,
    },
    /// The append begins after the position of the next update, so that it would skip positions.
    #[error(
        "an append to the update log of {run} begins at {first}, but the next update is \
         {expected}: append the updates before it first"
    )]
    Gap {
        /// The run.
        run: RunKey,
        /// The position of the next update.
        expected: UpdatePosition,
        /// The position at which the append begins.
        first: UpdatePosition,
    },
    /// The write would exceed a limit of the log. Nothing of the write is stored.
    #[error(
        "a write of {run} would exceed the maximum {limit} of the update log, {max}: erase runs, or raise the limit \
         in `UpdateLogOptions`"
    )]
    LimitExceeded {
        /// The run.
        run: RunKey,
        /// The name of the limit.
        limit: &'static str,
        /// The value of the limit.
        max: u64,
    },
    /// A stored update cannot be decoded.
    #[error("update {position} of {run} cannot be read: read the conversation from its history")]
    Undecodable {
        /// The run.
        run: RunKey,
        /// The position of the update.
        position: UpdatePosition,
        /// The reason.
        source: SharedError,
    },
    /// The backend reported an error.
    #[error("the update log failed to {action}")]
    Backend {
        /// The operation that failed.
        action: &'static str,
        /// Whether the operation may succeed if it is repeated.
        retryable: bool,
        /// The backend's error.
        source: SharedError,
    },
}

impl UpdateLogError {
    /// Creates the error for a write to a run that the log does not contain.
    pub fn unknown_run(run: &RunKey, attempt: u32) -> Self {
        Self::NotOwner { run: run.clone(), attempt, found: RunState::Unknown }
    }

    /// Creates an error of the backend.
    pub fn backend(action: &'static str, retryable: bool, source: impl Into<BoxError>) -> Self {
        Self::Backend { action, retryable, source: SharedError::new(source) }
    }

    /// Returns whether a repetition of the same operation may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Backend { retryable, .. } => *retryable,
            Self::NotOwner { .. }
            | Self::Gap { .. }
            | Self::LimitExceeded { .. }
            | Self::Undecodable { .. } => false,
        }
    }
}
