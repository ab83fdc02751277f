//! The figures of a search, and their table.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The figures of a search in a target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The target.
    pub target: String,
    /// The number of executions.
    pub executions: u64,
    /// The number of executions in which the parser accepted the input.
    pub accepted: u64,
    /// The duration in seconds, including the generation of inputs.
    pub seconds: f64,
    /// The maximum, over all executions with inputs of at least 4,096 bytes, of the peak memory
    /// divided by the length of the input.
    pub bytes_per_byte: f64,
    /// The maximum processor time of an execution, in milliseconds.
    pub slowest_ms: f64,
    /// The length of the input of the slowest execution, in bytes.
    pub slowest_length: usize,
}

/// The minimum length, in bytes, of inputs that count for `bytes_per_byte`. The memory for shorter
/// inputs is mostly the fixed memory of a parser.
pub(crate) const LONG: usize = 4096;

impl Figures {
    /// Returns the number of executions per second.
    pub fn rate(&self) -> f64 {
        approximate(self.executions) / self.seconds.max(1e-9)
    }
}

/// Converts a number for the output. The result may be inexact.
pub(crate) fn approximate(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// Returns a table with one line for each target.
pub(crate) fn table(figures: &[Figures]) -> String {
    let width = figures.iter().map(|it| it.target.len()).max().unwrap_or_default().max(6);
    let mut table = format!(
        "{:width$}  executions  a second    accepted  memory a byte  slowest input\n",
        "target"
    );
    for it in figures {
        let _never_fails = writeln!(
            table,
            "{:width$}  {:>10}  {:>8.0}  {:>10}  {:>13.1}  {:.1} ms for {} bytes",
            it.target,
            it.executions,
            it.rate(),
            it.accepted,
            it.bytes_per_byte,
            it.slowest_ms,
            it.slowest_length,
        );
    }
    table
}
