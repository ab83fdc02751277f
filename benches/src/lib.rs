//! Benchmarks of the cost of the layers for each service call. Each case also measures a floor, the
//! time of a simpler operation: the same work without these layers, or the same operation with a
//! smaller input. The module of each case describes its measurement and its floor.
//!
//! `cargo run --profile measure -p tower-chat-benches [-- --quick] [--case NAME]` prints one JSON
//! object on each line to stdout, and progress to stderr. Its fields are:
//!
//! - `us_per_call`, `floor_us`: medians in microseconds. The repetitions of the case and of the
//!   floor alternate.
//! - `ratio`: the first divided by the second.
//! - `bytes_written_per_call`, `floor_bytes`: the growth of the log of the store and of the floor.
//! - `fsyncs_per_call`: the number of syncs of the log.
//!
//! The last three fields and `durability` are null if the store does not write to a disk. A quick
//! measurement omits long histories, since they take long to create.
//!
//! `cargo run --profile measure -p tower-chat-benches --bin held` measures memory; see [`held`].
//! `benches/peers/run` starts the program `peers`; see [`peers`].

mod arguments;
mod bare;
mod cold_load;
mod cold_range;
mod detached;
mod directory;
mod files;
mod group_commit;
mod growth;
pub mod held;
mod inspector;
mod memory;
mod pairing;
pub mod peers;
mod postgres;
mod prompt_cache;
mod replay;
mod report;
mod request;
mod rows;
mod sqlite;
mod streamed_answer;
mod telemetry;
mod texts;
mod whole_run;
mod workload;
mod written;

use std::process::ExitCode;

use tower_chat::BoxError;
use tower_chat_testkit::server::Missing;

use self::arguments::{Arguments, Wanted};

struct Case {
    name: &'static str,
    measure: fn(effort: Effort) -> Result<(), BoxError>,
}

/// The number of repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Enough repetitions for comparable medians.
    Full,
    /// Enough repetitions to check that all cases run.
    Quick,
}

const CASES: &[Case] = &[
    Case { name: "request", measure: request::measure },
    Case { name: "replay", measure: replay::measure },
    Case { name: "replay_off", measure: replay::measure_off },
    Case { name: "loop", measure: memory::measure_loop },
    Case { name: "single", measure: memory::measure_single },
    Case { name: "first", measure: memory::measure_first },
    Case { name: "sqlite", measure: sqlite::measure },
    Case { name: "cold_load", measure: cold_load::measure },
    Case { name: "cold_range", measure: cold_range::measure },
    Case { name: "per_run", measure: whole_run::measure },
    Case { name: "group_commit", measure: group_commit::measure },
    Case { name: "postgres", measure: postgres::measure },
    Case { name: "streamed_answer", measure: streamed_answer::measure },
    Case { name: "pairing", measure: pairing::measure_pairing },
    Case { name: "overlap", measure: pairing::measure_overlap },
    Case { name: "telemetry", measure: telemetry::measure },
    Case { name: "directory", measure: directory::measure },
    Case { name: "growth", measure: growth::measure },
    Case { name: "detached", measure: detached::measure },
    Case { name: "prompt_cache", measure: prompt_cache::measure },
    Case { name: "inspector", measure: inspector::measure },
];

impl Effort {
    /// Returns the number of repetitions, which is small in a quick measurement.
    fn repetitions(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => full.min(3),
        }
    }
}

/// Prints the name of a missing server.
///
/// # Errors
///
/// If the server is required.
fn skipped(missing: Missing) -> Result<(), BoxError> {
    if std::env::var_os("TOWER_CHAT_CI").is_some_and(|set| set == "1") {
        return Err(missing.into());
    }
    eprintln!("skipped: {missing}");
    Ok(())
}

/// Runs the benchmarks that the arguments of the process select.
pub fn main() -> ExitCode {
    let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
    let arguments = match Arguments::parse(std::env::args_os().skip(1), &names) {
        Ok(Wanted::Measurement(arguments)) => arguments,
        Ok(Wanted::Help) => {
            eprintln!("{}", arguments::usage(&names));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{}", arguments::usage(&names));
            return ExitCode::from(2);
        }
    };
    for case in CASES.iter().filter(|case| arguments.wants(case.name)) {
        eprintln!("measuring {} ...", case.name);
        if let Err(error) = (case.measure)(arguments.effort) {
            eprintln!("error: the case {:?} failed: {error}", case.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
