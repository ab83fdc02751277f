//! Tests that every damaged conversation is replayed as a valid history, under every combination of
//! policies.
//!
//! `TOWER_CHAT_SEED` sets the seed, `TOWER_CHAT_CASES` the number of cases, and `TOWER_CHAT_CASE`
//! selects a single case. `TOWER_CHAT_DATA` is the folder of the recorded data.

mod case;
mod damage;
mod plan;
mod properties;
mod transcripts;

use self::{case::Case, transcripts::say};
use crate::search::Search;

const SEED: u64 = 20_250_514;
const CASES: u64 = 5_000;

#[test]
fn the_replay_of_every_transcript_is_valid_under_every_combination_of_policies() {
    let transcripts = transcripts::all();
    let search = Search::new(SEED, CASES);
    let (seed, cases) = (search.seed, &search.cases);
    say(&format!("seed {seed}, cases {cases:?}, {} transcripts", transcripts.len()));
    let is_wrong = |case| Case::random(seed, case, &transcripts).failure().is_some();
    if let (Some(number), _) = search.first(is_wrong) {
        let case = Case::random(seed, number, &transcripts).shrunk();
        let failure = case.failure().unwrap_or_default();
        let command = Search::command(seed, number, "replay_properties");
        panic!("{command}\n{failure}\n{case:?}");
    }
}
