use std::error::Error;
use std::fmt::Display;

/// The reason why a campaign has no figures.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The campaign has found a broken rule. The same seed and case reproduce the failure.
    #[error("broken promise in case {case} of seed {seed}: {what}")]
    Found {
        /// The seed of the campaign.
        seed: u64,
        /// The number of the case, from 0.
        case: u64,
        /// The broken rule, and what was observed instead.
        what: String,
    },
    /// The campaign could not continue: a program is missing, or a server did not start.
    #[error("the campaign cannot run: {what}")]
    CannotRun {
        /// The operation that failed.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl Failure {
    /// Creates a [`Failure::CannotRun`] without a source.
    pub fn cannot_run(what: impl Display) -> Self {
        Self::CannotRun { what: what.to_string(), source: None }
    }
}
