use std::error::Error;
use std::fmt::Display;

/// Why a campaign ended without its figures.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A promise is broken. The same seed and case find it again.
    #[error("broken promise in case {case} of seed {seed}: {what}")]
    Found {
        /// Of the campaign.
        seed: u64,
        /// Which of its cases, from 0.
        case: u64,
        /// The promise, and what was seen instead.
        what: String,
    },
    /// The campaign could not go on: a program is missing, a server did not start.
    #[error("the campaign cannot run: {what}")]
    CannotRun {
        /// What was being done.
        what: String,
        /// What stopped it.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl Failure {
    /// Without an error of somebody else's behind it.
    pub fn cannot_run(what: impl Display) -> Self {
        Self::CannotRun { what: what.to_string(), source: None }
    }
}
