//! The arguments of `play`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, ValueEnum};
use tower_chat::PersistenceMode;

use super::store::StoreLocation;

/// Plays recorded conversations through the real stack into a store
///
/// Each line of FILE is a conversation: {"id": ..., "messages": [OpenAI chat format]}. The model returns
/// the recorded assistant messages, and the tools return the recorded results. Each request to the model is
/// compared with the recording. The last line of the output is a JSON object with the counts of the play.
///
/// A journaled play into a SQLite file counts service calls and tool executions in the file PATH.played.
/// The counts include all earlier attempts, even killed ones.
///
/// Exit codes: 0, played as recorded; 1, a play diverged from its recording; 2, a play or the store failed;
/// 130, interrupted.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The recorded conversations, one JSON object a line
    #[arg(value_name = "FILE.jsonl")]
    pub(super) file: PathBuf,
    /// The store, which is created if it is missing: memory:, sqlite:PATH, postgres://USER@HOST/DATABASE or
    /// redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = "TOWER_CHAT_STORE", hide_env_values = true)]
    pub(super) store: StoreLocation,
    /// When messages become durable
    #[arg(long, value_enum, default_value_t = Persistence::PerRun)]
    pub(super) persistence: Persistence,
    /// Request streamed answers
    #[arg(long)]
    pub(super) stream: bool,
    /// The number of conversations that are played at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) concurrency: NonZeroUsize,
    /// Continue conversations that are partly in the store
    #[arg(long)]
    pub(super) resume: bool,
    /// Compare the requests and the stored messages with the recording (the default)
    #[arg(long)]
    pub(super) verify: bool,
    /// Compare neither requests nor stored messages
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
    /// After every step; visible after the end of the run
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
