//! The errors by which tools send a text to the model or fail the run.

use std::{error::Error, fmt};

use tower_chat_core::BoxError;

/// An error with which a tool selects the effect of its failure: the model receives a text, or the
/// run fails.
///
/// If a tool returns an error of another type, the run continues, and the model receives an error
/// result. This result does not contain the text of the error, unless
/// [`ToolLoopLayer::include_error_details`](crate::ToolLoopLayer::include_error_details) is set.
///
/// ```
/// use tower_chat::{BoxError, ToolError};
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
/// A `ToolError` can be wrapped in another error whose [`source`](Error::source) chain contains the
/// `ToolError`, such as an `anyhow::Error` with or without a context.
#[derive(Debug)]
pub struct ToolError(Effect);

/// The effect of a tool's error.
///
/// The effect is stored as the [`source`](Error::source) of a [`ToolError`], because some wrappers
/// hide the wrapped error and expose only its source, such as an `anyhow::Error` that was converted
/// into a `BoxError`.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The model receives exactly this text, as an error result.
    ForModel(String),
    /// The run fails with this error.
    FailRun(BoxError),
}

impl ToolError {
    /// Creates an error whose text the model receives as an error result. The run continues.
    pub fn for_model(text: impl Into<String>) -> Self {
        Self(Effect::ForModel(text.into()))
    }

    /// Creates an error that fails the run with
    /// [`ToolLoopError::ToolFailedRun`](crate::ToolLoopError::ToolFailedRun). The tool loop starts
    /// no further call of the answer, unless it runs calls concurrently. A journaled run remains
    /// open. When the run is resumed, it uses the error as the result of the call, and runs the
    /// remaining calls.
    pub fn fail_run(source: impl Into<BoxError>) -> Self {
        Self(Effect::FailRun(source.into()))
    }

    /// Returns whether the error fails the run. An error that does not fail the run is sent to the
    /// model as a text.
    pub fn fails_run(&self) -> bool {
        matches!(self.0, Effect::FailRun(_))
    }

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
            Self::ForModel(_) => "the error is reported to the model",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_of_an_error_contains_its_text_and_its_effect() {
        let chain = |error: &ToolError| {
            let of = |error: &(dyn Error + 'static)| error.to_string();
            let effect = error.source().unwrap();
            let cause = effect.source().map(of);
            (error.fails_run(), of(error), of(effect), cause)
        };
        let reported = "the error is reported to the model".to_owned();
        let expected = (false, "sold out".to_owned(), reported, None);
        assert_eq!(chain(&ToolError::for_model("sold out")), expected);
        let (text, effect) = ("the tool failed the run", "no further call is started");
        let expected = (true, text.to_owned(), effect.to_owned(), Some("no card".to_owned()));
        assert_eq!(chain(&ToolError::fail_run("no card")), expected);
    }
}
