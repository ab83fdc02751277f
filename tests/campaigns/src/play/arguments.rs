//! What `play` is given.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, ValueEnum};
use tower_chat::PersistenceMode;

use super::store::StoreLocation;

/// Drives recorded conversations through the real stack, into a store
///
/// Each line of FILE is a conversation: {"id": ..., "messages": [OpenAI chat format]}. Recorded
/// assistant messages are the model's answers, recorded tool results are what the tools return,
/// and everything the model is sent is compared with the recording. The last line of the output
/// is a JSON object that says what was done.
///
/// Of journaled plays into a SQLite file the service calls and tool executions are summed over
/// all attempts, killed ones too: they are counted in a file beside it, PATH.played.
///
/// Exit codes: 0, played as recorded; 1, something diverged; 2, something failed; 130,
/// interrupted.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The recorded conversations, one JSON object a line
    #[arg(value_name = "FILE.jsonl")]
    pub(super) file: PathBuf,
    /// Where histories are kept, and made if they are missing: memory:, sqlite:PATH,
    /// postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = "TOWER_CHAT_STORE", hide_env_values = true)]
    pub(super) store: StoreLocation,
    /// When messages become durable
    #[arg(long, value_enum, default_value_t = Persistence::PerRun)]
    pub(super) persistence: Persistence,
    /// Ask for answers as streams
    #[arg(long)]
    pub(super) stream: bool,
    /// How many conversations are played at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) concurrency: NonZeroUsize,
    /// Go on with conversations that are partly in the store
    #[arg(long)]
    pub(super) resume: bool,
    /// Compare what the model is sent, and what is stored, with the recording (the default)
    #[arg(long)]
    pub(super) verify: bool,
    /// Compare nothing
    #[arg(long, conflicts_with = "verify")]
    pub(super) no_verify: bool,
}

/// When messages become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Persistence {
    /// Once, when a run has ended
    PerRun,
    /// After every service call
    PerServiceCall,
    /// As it happens, and seen once the run is complete
    Journaled,
}

impl From<Persistence> for PersistenceMode {
    fn from(persistence: Persistence) -> Self {
        match persistence {
            Persistence::PerRun => Self::PerRun,
            Persistence::PerServiceCall => Self::PerServiceCall,
            Persistence::Journaled => Self::Journaled,
        }
    }
}
