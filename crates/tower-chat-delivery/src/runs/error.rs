//! The errors of detached runs, and of their readers.

use tower_chat_layers::{Retryability, SharedError};

use crate::{RunKey, UpdateLogError};

/// A run could not begin in a separate task, or its updates could not be read.
///
/// If a run has failed, the error of the run is the [`source`](std::error::Error::source) of
/// [`Failed`](Self::Failed).
///
/// ```
/// use tower_chat_delivery::{DeliveryError, RunKey};
///
/// fn advice(error: &DeliveryError) -> &'static str {
///     match error {
///         DeliveryError::UnknownRun { .. } => "load the history",
///         DeliveryError::Interrupted { .. } => "send the request again",
///         DeliveryError::TooManyRuns { .. } => "send the request later",
///         _ => "look at the error's source",
///     }
/// }
/// # use tower_chat_layers::{ConversationKey, RunId};
/// let run = RunKey::new(ConversationKey::new("alice", "support"), RunId::new());
/// assert_eq!(advice(&DeliveryError::UnknownRun { run }), "load the history");
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// The update log does not contain the run: the run never began, or its updates were erased or
    /// have expired.
    #[error("there are no updates of {run}: read the conversation from its history")]
    UnknownRun {
        /// The run.
        run: RunKey,
    },
    /// The layer is below `PerRunPersistence` or the pipeline. In this position, the layer would
    /// execute each service call (request to the model), instead of each run, in a separate task.
    #[error("DetachedRunsLayer is below the persistence of {run}: put it above PerRunPersistence")]
    BelowPersistence {
        /// The run.
        run: RunKey,
        /// States that a repeated request fails again.
        source: Retryability,
    },
    /// The run is in progress in this process, and its request has other messages than this
    /// request.
    #[error("{run} is in progress with another input: send this request with a new run id")]
    OtherInput {
        /// The run.
        run: RunKey,
        /// States that a repeated request fails again, as long as the run is in progress.
        source: Retryability,
    },
    /// Too many runs are in progress in this process.
    #[error("{max_runs} runs are in progress, which is the limit: send the request again later")]
    TooManyRuns {
        /// The limit.
        max_runs: usize,
        /// States that a repeated request may succeed.
        source: Retryability,
    },
    /// The run has failed.
    #[error("{run} has failed: see the cause")]
    Failed {
        /// The run.
        run: RunKey,
        /// The error of the run.
        source: SharedError,
    },
    /// The process of the run died, or did not renew its claim on the run (the lease) in time,
    /// before the end of the run.
    #[error("{run} was interrupted: send the request of the run again to continue it")]
    Interrupted {
        /// The run.
        run: RunKey,
        /// States that a repeated request may succeed.
        source: Retryability,
    },
    /// The run has ended, but the update log has refused its last updates. The history contains the
    /// answer.
    #[error(
        "the update log lacks the end of {run}: send the request of the run again, or read the conversation \
         from its history"
    )]
    Truncated {
        /// The run.
        run: RunKey,
        /// States that a repeated request may succeed.
        source: Retryability,
    },
    /// The update log failed.
    #[error(transparent)]
    Log(#[from] UpdateLogError),
}
