//! Runs `transfers`, and its planted faults.

use std::path::PathBuf;

use tower_chat_campaigns::{
    Failure, Figures,
    transfers::{self, Arguments, Plant},
};

fn run(cases: u64, plant: Option<Plant>) -> Result<Figures, Failure> {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_tower-chat-campaigns")));
    transfers::run(&Arguments { cases, seed: 1, plant, program })
}

#[test]
fn a_killed_and_repeated_transfer_has_the_same_result_as_an_undisturbed_transfer() {
    let figures = run(2, None).unwrap();
    for operation in ["export", "import", "copy", "delete", "migrate"] {
        let transfers = format!("{operation}: transfers");
        assert_eq!(figures.get(&transfers), Some("2"), "{figures}");
    }
}

#[test]
fn the_campaign_finds_planted_faults() {
    for (plant, expected) in [
        (Plant::SkippedConversation, "import"),
        (Plant::UnsettledReceipt, "delete"),
        (Plant::RepeatedConversation, "export"),
    ] {
        match run(20, Some(plant)) {
            Err(Failure::Found { what, .. }) => assert!(what.starts_with(expected), "{what}"),
            other => panic!("{plant:?}: {other:?}"),
        }
    }
}
