use tower_chat_campaigns::{
    Failure,
    power_cuts::{Arguments, Plant, can_record, run},
};
use tower_chat_testkit::skip;

fn arguments(cases: u64, cuts: u64, plant: Option<Plant>) -> Arguments {
    let program = env!("CARGO_BIN_EXE_tower-chat-campaigns");
    Arguments {
        cases,
        cuts,
        seed: 1,
        first: 0,
        plant,
        recordings: None,
        program: Some(program.into()),
    }
}

#[test]
fn a_store_keeps_its_durability_guarantees_after_a_power_loss() {
    if let Err(reason) = can_record() {
        return skip("power cuts", reason);
    }
    let figures = run(arguments(6, 20, None)).unwrap();
    assert_eq!(figures.get("cuts"), Some("120"));
    for counted in ["cuts that lost unsynced changes", "cuts with a torn write"] {
        assert_ne!(figures.get(counted), Some("0"), "{counted}");
    }
}

#[test]
fn the_campaign_finds_planted_faults() {
    if let Err(reason) = can_record() {
        return skip("planted faults of power cuts", reason);
    }
    for plant in [Plant::NoSyncs, Plant::NoFolderSyncs, Plant::EarlyAcknowledgement] {
        let found = run(arguments(6, 20, Some(plant)));
        assert!(matches!(found, Err(Failure::Found { .. })), "{plant:?}: {found:?}");
    }
}
