use tower_chat_campaigns::{
    Failure,
    corruption::{Arguments, Plant, run},
};

#[test]
fn no_flipped_bit_is_read_as_another_message() {
    let figures = run(Arguments { cases: 1, seed: 1, plant: None }).unwrap();
    for kind in ["pages", "pages with encrypted messages"] {
        let wrong = format!("{kind}: flips that are read as other messages");
        assert_eq!(figures.get(&wrong), Some("0"));
    }
    assert_eq!(figures.get("export: flips"), figures.get("export: flips that were refused"));
}

#[test]
fn the_campaign_finds_flipped_bits_in_messages_without_checksums() {
    let found = run(Arguments { cases: 1, seed: 1, plant: Some(Plant::Unchecked) });
    assert!(matches!(found, Err(Failure::Found { .. })), "{found:?}");
}
