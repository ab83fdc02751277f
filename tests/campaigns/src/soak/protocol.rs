//! What the campaign and its processes tell each other: one JSON value a line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::metrics::Measures;
use crate::conversations::{Job, Outcome, Turn, TurnEvent};

/// To a process, on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Command {
    Run(Job),
    /// Reports the whole run as stored, and stores nothing.
    PretendToRun(Job),
    /// Stores the run with a call that has no result.
    RunWithoutResult(Job),
    Prune {
        conversation: u32,
        keep: u64,
    },
    Backup {
        to: PathBuf,
    },
    /// Closes the store and opens it again.
    Restart {
        is_forgotten: bool,
    },
    /// Asks for everything that was measured since.
    Measure {
        number: u64,
    },
    Quit,
}

/// From a process, on its standard output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Report {
    Opened,
    Happened {
        turn: Turn,
        event: TurnEvent,
    },
    /// Something that cannot be.
    Wrong {
        turn: Turn,
        what: String,
    },
    Ended {
        turn: Turn,
        outcome: Outcome,
    },
    Pruned {
        conversation: u32,
        result: Result<u64, String>,
    },
    BackedUp {
        to: PathBuf,
        result: Result<u64, String>,
    },
    Restarted {
        result: Result<(), String>,
    },
    Measured {
        number: u64,
        measures: Measures,
    },
}
