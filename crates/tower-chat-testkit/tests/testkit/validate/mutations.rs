use std::collections::BTreeMap;

use tower_chat_testkit::validate::{Wire, validate};

use super::{
    data,
    mutation::{Mutation, Verdict},
};

#[test]
fn each_single_fault_that_a_provider_forbids_is_refused_by_the_rule_it_breaks() {
    let bodies = data::accepted();
    let mut counts = BTreeMap::new();
    let mut rules = BTreeMap::new();
    for accepted in &bodies {
        for mutation in Mutation::ALL {
            let verdict = mutation.verdict(accepted.wire);
            for mutant in mutation.mutants(accepted.wire, &accepted.body) {
                let source = format!("{} {mutation:?}\n{mutant:#}", accepted.id);
                assert_ne!(mutant, accepted.body, "{source}");
                *counts.entry((accepted.wire, mutation)).or_insert(0_usize) += 1;
                match (verdict, validate(accepted.wire, &mutant)) {
                    (Verdict::Allowed, result) => result.expect(&source),
                    (Verdict::NotPossible, _) => panic!("not possible, but done: {source}"),
                    (Verdict::Forbidden(_), Ok(())) => panic!("not refused: {source}"),
                    (Verdict::Forbidden(expected), Err(invalid)) => {
                        let broken: Vec<_> = invalid.violations().map(|found| found.rule).collect();
                        let named = expected.iter().any(|rule| broken.contains(rule));
                        assert!(named, "{broken:?} instead of {expected:?}: {source}");
                        for found in invalid.violations() {
                            assert_eq!(Some(found.source), found.rule.source(found.wire));
                            *rules.entry((found.wire, found.rule)).or_insert(0_usize) += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(!counts.is_empty());
    print(&counts);
    for ((wire, rule), count) in &rules {
        println!("{wire:17} {:26} broken {count:4} times", format!("{rule:?}"));
    }
    for wire in Wire::ALL {
        for mutation in Mutation::ALL {
            let count = counts.get(&(wire, mutation)).copied().unwrap_or_default();
            match mutation.verdict(wire) {
                Verdict::Forbidden(_) | Verdict::Allowed if count == 0 => {
                    println!("{wire} {mutation:?} was never made: no recorded body permits it");
                }
                Verdict::Forbidden(_) | Verdict::Allowed => {}
                Verdict::NotPossible => assert_eq!(count, 0, "{wire} {mutation:?}"),
            }
        }
    }
}

fn print(counts: &BTreeMap<(Wire, Mutation), usize>) {
    let (mut refused, mut allowed) = (0, 0);
    for ((wire, mutation), count) in counts {
        let verdict = match mutation.verdict(*wire) {
            Verdict::Forbidden(rules) => {
                refused += count;
                format!("refused by {rules:?}")
            }
            Verdict::Allowed | Verdict::NotPossible => {
                allowed += count;
                "valid, as the wire allows it".to_owned()
            }
        };
        println!("{wire:17} {:26} {count:4} {verdict}", format!("{mutation:?}"));
    }
    println!("{refused} mutants refused, {allowed} valid");
}
