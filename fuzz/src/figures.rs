//! What a search did with a target.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// What a search did with a target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The target.
    pub target: String,
    /// How many inputs it was given.
    pub executions: u64,
    /// How many of them the parser accepted.
    pub accepted: u64,
    /// How long all of it took, the damage included.
    pub seconds: f64,
    /// The most memory that an input of at least 4,096 bytes took, by its length.
    pub bytes_per_byte: f64,
    /// The most processor time of an execution, in milliseconds.
    pub slowest_ms: f64,
    /// The length of the input that took it.
    pub slowest_length: usize,
}

/// Shorter inputs say little of how memory grows: what a parser takes for any input outweighs them.
pub(crate) const LONG: usize = 4096;

impl Figures {
    /// Executions a second.
    pub fn rate(&self) -> f64 {
        approximate(self.executions) / self.seconds.max(1e-9)
    }
}

/// A number that is printed with few digits.
pub(crate) fn approximate(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// A table with a line for each target.
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
