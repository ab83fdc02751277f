//! Tests that no external input makes a parser panic.
//!
//! Each target is a parser, which receives recorded bytes with seeded damage: requests, answers and
//! streams in the JSON format of every provider, stored messages, rows of a store in plaintext and
//! encrypted, imported rows, histories of other systems, answers of an MCP server, and requests to
//! the HTTP endpoint. The default test tries some thousand inputs. The ignored test, for a release
//! build, tries `TOWER_CHAT_CASES` inputs of each target (one million by default), and prints
//! counts and the slowest input with its time and length. `TOWER_CHAT_SEED` sets the seed of the
//! damage, `TOWER_CHAT_CASE` selects one case of each target, and `TOWER_CHAT_TARGET` selects the
//! targets with this text in their names.

mod clients;
mod damage;
mod imports;
mod mcp;
mod rows;
mod seeds;
mod targets;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use tower_chat_testkit::Rng;

use self::targets::Target;
use crate::search::variable;

const SEED: u64 = 20_261_123;
const FEW: u64 = 400;
const MANY: u64 = 1_000_000;
/// The maximum time that a release build may take for an input, in microseconds for each byte of
/// the input. The limit of each input is longer by `US_PER_INPUT`. An algorithm that is quadratic
/// in the length of the input would take a thousand times as long.
const US_PER_BYTE: f64 = 5.0;
const US_PER_INPUT: f64 = 20_000.0;

#[test]
fn no_parser_panics_on_damaged_input() {
    for target in targets::all() {
        let cases = if target.is_slow { FEW / 4 } else { FEW };
        Run::of(&target, cases).check(&target);
    }
}

#[test]
#[ignore = "a million inputs of each target: run it in a release build"]
fn no_parser_panics_or_needs_more_than_linear_time_on_a_million_damaged_inputs() {
    for target in targets::all() {
        let run = Run::of(&target, variable("TOWER_CHAT_CASES").unwrap_or(MANY));
        let Run { cases, accepted, us, slowest, .. } = &run;
        let (slowest_us, length, case) = slowest;
        eprintln!(
            "{:<32} {cases:>8} inputs, {accepted:>8} accepted, {:>6.1} us each; slowest {slowest_us:.0} us for \
             {length} bytes (case {case})",
            target.name,
            us / u32::try_from((*cases).max(1)).map_or(f64::NAN, f64::from),
        );
        run.check(&target);
        if !cfg!(debug_assertions) {
            let max = US_PER_INPUT + US_PER_BYTE * u32::try_from(*length).map_or(0.0, f64::from);
            // A single execution may be slow because the machine is busy, so the input is executed
            // again.
            let again = (0..5).map(|_| time_of(&target, *case));
            let us = again.fold(*slowest_us, f64::min);
            assert!(us < max, "{}: case {case} took {us} us", target.name);
        }
    }
}

/// Returns the time for a case, in microseconds.
fn time_of(target: &Target, case: u64) -> f64 {
    let mut rng = Rng::of(variable("TOWER_CHAT_SEED").unwrap_or(SEED), case);
    let input = damage::damaged(&target.seeds, &mut rng);
    let start = Instant::now();
    (target.run)(&input, &mut rng);
    start.elapsed().as_secs_f64() * 1e6
}

/// The results of the inputs of a target.
#[derive(Default)]
struct Run {
    cases: u64,
    accepted: u64,
    us: f64,
    /// The slowest input: its time in microseconds, its length and its case.
    slowest: (f64, usize, u64),
    /// The cases that panicked.
    panicked: Vec<u64>,
}

impl Run {
    fn of(target: &Target, cases: u64) -> Self {
        let mut run = Self::default();
        let wanted: Option<String> = variable("TOWER_CHAT_TARGET");
        if target.seeds.is_empty() || wanted.is_some_and(|wanted| !target.name.contains(&wanted)) {
            return run;
        }
        let seed = variable("TOWER_CHAT_SEED").unwrap_or(SEED);
        let cases = match variable("TOWER_CHAT_CASE") {
            Some(case) => case..case + 1,
            None => 0..cases,
        };
        for case in cases {
            let mut rng = Rng::of(seed, case);
            let input = damage::damaged(&target.seeds, &mut rng);
            let start = Instant::now();
            let accepted = catch_unwind(AssertUnwindSafe(|| (target.run)(&input, &mut rng)));
            let us = start.elapsed().as_secs_f64() * 1e6;
            run.cases += 1;
            run.us += us;
            if us > run.slowest.0 {
                run.slowest = (us, input.len(), case);
            }
            match accepted {
                Ok(accepted) => run.accepted += u64::from(accepted),
                Err(_) => run.panicked.push(case),
            }
            if run.panicked.len() > 20 {
                break;
            }
        }
        run
    }

    fn check(&self, target: &Target) {
        let Self { panicked, .. } = self;
        assert!(panicked.is_empty(), "{}: the cases {panicked:?} panicked", target.name);
    }
}
