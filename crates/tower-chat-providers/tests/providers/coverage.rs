//! Checks that a test replays every recorded exchange, or that a list contains the reason why no
//! test does.
//!
//! `chat::recorded` replays all exchanges of Chat Completions, `responses::recorded` all exchanges
//! of Responses, and `wires::recorded` the exchanges for which [`ModelRequest`] has a provider.
//! These tests fail if a request or an answer differs from the recording.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cassettes::{self, Api, Exchange},
    wires::wire::{EXCLUDED, ModelRequest},
};

/// Whether a test replays an exchange, or the reason why no test does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Coverage {
    Asserted,
    NoModelCall,
    Excluded(&'static str),
}

fn coverage(exchange: &Exchange) -> Coverage {
    let api = exchange.api().unwrap();
    let excluded = EXCLUDED.iter().find(|(known, _)| *known == api);
    match (api, excluded) {
        (Api::Other, _) => Coverage::NoModelCall,
        (_, Some((_, reason))) => Coverage::Excluded(reason),
        (Api::ChatCompletions | Api::Responses, None) => Coverage::Asserted,
        (_, None) => {
            assert!(
                ModelRequest::of_exchange(exchange).is_some(),
                "{}: no test plays it",
                exchange.source
            );
            Coverage::Asserted
        }
    }
}

#[derive(Debug, Default)]
struct Count {
    exchanges: usize,
    asserted: usize,
    excluded: usize,
    no_model_call: usize,
}

#[test]
fn every_recorded_exchange_is_tested_or_listed_with_the_reason() {
    let cassettes = cassettes::all_cassettes();
    assert!(!cassettes.is_empty());
    let mut counts: BTreeMap<&str, (Count, BTreeSet<String>)> = BTreeMap::new();
    for file in &cassettes {
        let (count, reasons) = counts.entry(&file.folder).or_default();
        for exchange in &file.exchanges {
            count.exchanges += 1;
            match coverage(exchange) {
                Coverage::Asserted => count.asserted += 1,
                Coverage::NoModelCall => count.no_model_call += 1,
                Coverage::Excluded(reason) => {
                    count.excluded += 1;
                    reasons.insert(format!("{}: {reason}", exchange.source));
                }
            }
        }
    }
    println!("folder: exchanges = asserted on + excluded + no call of a model");
    for (folder, (count, reasons)) in &counts {
        let Count { exchanges, asserted, excluded, no_model_call } = count;
        println!("{folder}: {exchanges} = {asserted} + {excluded} + {no_model_call}");
        reasons.iter().for_each(|reason| println!("    {reason}"));
    }
}
