//! The protocol between the supervisor and its processes: one JSON value on each line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::metrics::Measures;
use crate::conversations::{Job, Outcome, Turn, TurnEvent};

/// A command to a process, on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Command {
    Run(Job),
    /// Reports the run as complete without executing it (a planted fault).
    PretendToRun(Job),
    /// Stores the run with a call that has no result (a planted fault).
    RunWithoutResult(Job),
    Prune {
        conversation: u32,
        keep: u64,
    },
    Backup {
        to: PathBuf,
    },
    /// Opens the store again, and then closes the old store or leaks it.
    Restart {
        leaks: bool,
    },
    /// Requests the measurements since the previous request.
    Measure {
        number: u64,
    },
    Quit,
}

/// A report of a process, on its standard output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Report {
    Opened,
    Happened {
        turn: Turn,
        event: TurnEvent,
    },
    /// A fault that the process has detected.
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
