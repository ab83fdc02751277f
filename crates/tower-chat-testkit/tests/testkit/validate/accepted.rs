use std::collections::BTreeMap;

use tower_chat_testkit::validate::validate;

use crate::validate::data;

#[test]
fn every_body_that_a_provider_accepted_is_valid() {
    let bodies = data::accepted();
    let mut counts = BTreeMap::new();
    for accepted in &bodies {
        if let Err(invalid) = validate(accepted.wire, &accepted.body) {
            let all: Vec<_> = invalid.violations().map(ToString::to_string).collect();
            panic!("{}:\n{}", accepted.id, all.join("\n"));
        }
        *counts.entry(accepted.wire).or_insert(0_usize) += 1;
    }
    for (wire, count) in &counts {
        println!("{wire:20} {count:4} accepted bodies are valid");
    }
    assert!(!bodies.is_empty());
}
