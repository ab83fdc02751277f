//! Every transcript replays valid under every combination of policies, whatever is wrong with it.
//!
//! `TOWER_CHAT_SEED` chooses other cases, `TOWER_CHAT_CASES` how many there are, and
//! `TOWER_CHAT_CASE` runs one of them alone. `TOWER_CHAT_DATA` names the recorded data.

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
fn every_transcript_replays_valid_under_every_combination_of_policies() {
    let transcripts = transcripts::all();
    let search = Search::new(SEED, CASES);
    let (seed, cases) = (search.seed, &search.cases);
    say(&format!("seed {seed}, cases {cases:?}, {} transcripts", transcripts.len()));
    let is_wrong = |case| Case::random(seed, case, &transcripts).complaint().is_some();
    if let (Some(number), _) = search.first(is_wrong) {
        let case = Case::random(seed, number, &transcripts).shrunk();
        let complaint = case.complaint().unwrap_or_default();
        let command = Search::command(seed, number, "replay_properties");
        panic!("{command}\n{complaint}\n{case:?}");
    }
}
