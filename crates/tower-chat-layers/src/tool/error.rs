//! Errors that a tool shows to the model, or that fail the run.

use std::error::Error;

use tower_chat_core::BoxError;

/// An error of a tool that the model is shown in its own words, or that fails the run.
///
/// Of any other error the model is told no more than that the tool failed, unless
/// [`ToolLoop::include_error_details`](crate::ToolLoop::include_error_details) is set, and the run
/// goes on.
///
/// ```
/// use tower_chat::{BoxError, tool::ToolError};
///
/// fn charge(cents: u64) -> Result<String, BoxError> {
///     if cents == 0 {
///         return Err(ToolError::for_model("an amount of 0 cannot be charged").into());
///     }
///     let key = std::env::var("PAYMENT_KEY").map_err(ToolError::fail_run)?;
///     Ok(format!("charged with a key of {} letters", key.len()))
/// }
/// # assert!(charge(0).is_err());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The model is told exactly this, as an error result, and the run goes on.
    #[error("{0}")]
    ForModel(String),
    /// The run fails with
    /// [`ToolLoopError::ToolFailedRun`](crate::ToolLoopError::ToolFailedRun). No further call of the
    /// answer is started, except where the loop runs calls concurrently. A journaled run stays open: an
    /// attempt that resumes it takes the error for the call's result, and runs the calls that are left.
    #[error("the tool failed the run")]
    FailRun(#[source] BoxError),
}

impl ToolError {
    /// An error in words for the model.
    pub fn for_model(text: impl Into<String>) -> Self {
        Self::ForModel(text.into())
    }

    /// An error that fails the run.
    pub fn fail_run(source: impl Into<BoxError>) -> Self {
        Self::FailRun(source.into())
    }

    /// The error of this type in a chain of errors.
    pub(crate) fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        error.downcast_ref().or_else(|| Self::of(error.source()?))
    }
}
