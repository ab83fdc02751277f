//! Errors that a tool shows to the model, or that fail the run.

use std::{error::Error, fmt};

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
///
/// It can be wrapped in other errors: in those of `anyhow`, with and without a context, and in every
/// error whose [`source`](Error::source) leads to it.
#[derive(Debug)]
pub struct ToolError(Effect);

/// What a tool's error does.
///
/// It stands behind a [`ToolError`] in the chain of sources, since a wrapper may hide the type of what
/// it wraps and pass on its source alone: `anyhow::Error` does, once it is a `BoxError`.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The model is told exactly this, as an error result.
    ForModel(String),
    /// The run fails with this.
    FailRun(BoxError),
}

impl ToolError {
    /// The model is told exactly this, as an error result, and the run goes on.
    pub fn for_model(text: impl Into<String>) -> Self {
        Self(Effect::ForModel(text.into()))
    }

    /// The run fails with
    /// [`ToolLoopError::ToolFailedRun`](crate::ToolLoopError::ToolFailedRun). No further call of the
    /// answer is started, except where the loop runs calls concurrently. A journaled run stays open: an
    /// attempt that resumes it takes the error for the call's result, and runs the calls that are left.
    pub fn fail_run(source: impl Into<BoxError>) -> Self {
        Self(Effect::FailRun(source.into()))
    }

    /// Whether it fails the run, instead of being told to the model.
    pub fn fails_run(&self) -> bool {
        matches!(self.0, Effect::FailRun(_))
    }

    /// What the error of this type does that stands in a chain of errors.
    pub(crate) fn effect_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Effect> {
        error.downcast_ref().or_else(|| Self::effect_of(error.source()?))
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Effect::ForModel(text) => f.write_str(text),
            Effect::FailRun(_) => f.write_str("the tool failed the run"),
        }
    }
}

impl Error for ToolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ForModel(_) => "the model is told so",
            Self::FailRun(_) => "no further call is started",
        })
    }
}

impl Error for Effect {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::ForModel(_) => None,
            Self::FailRun(source) => Some(&**source),
        }
    }
}
