//! Runs a small version of `deliveries`, and its planted faults.

use std::path::PathBuf;

use tower_chat_campaigns::{
    Failure, Figures,
    deliveries::{Arguments, Plant, run},
};

fn arguments(cases: u64, plant: Option<Plant>) -> Arguments {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_tower-chat-campaigns")));
    Arguments { cases, seed: 1, first: 0, plant, program }
}

fn count(figures: &Figures, name: &str) -> u64 {
    figures.get(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn every_reader_receives_each_update_once() {
    let expected = ["killed processes", "attempts after the first", "connections", "events"];
    let mut counts = [0; 4];
    // The processes run in random order, and some cases have only one attempt. Cases are repeated
    // until every counted event has occurred.
    for first in 0..20 {
        let case = Arguments { first, ..arguments(1, None) };
        let figures = run(&case).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(count(&figures, "runs"), 1);
        for (sum, name) in counts.iter_mut().zip(expected) {
            *sum += count(&figures, name);
        }
        if first > 1 && !counts.contains(&0) {
            return;
        }
    }
    panic!("something does not occur in 20 cases: {expected:?}, {counts:?}");
}

#[test]
fn the_campaign_finds_planted_faults() {
    for plant in [Plant::LostUpdate, Plant::DoubledUpdate, Plant::EarlyEnd] {
        let found = run(&arguments(20, Some(plant)));
        assert!(matches!(found, Err(Failure::Found { .. })), "{plant:?}: {found:?}");
    }
}
