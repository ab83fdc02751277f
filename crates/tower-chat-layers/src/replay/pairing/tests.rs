use tower_chat_core::{MessageId, RunId};

use super::*;
use crate::replay::generated::Rng;

const IDS: [Option<&str>; 5] = [None, Some(""), Some("a"), Some("b"), Some("c")];
const NAMES: [&str; 3] = ["look", "pay", "wait"];

/// The rule, as plainly as it can be written: every call is looked at for every result.
fn plain_answer(result: &ToolResult, calls: &[Asked<&str>]) -> Answers {
    let calls = || calls.iter().enumerate();
    if let Some(named) = result.call {
        return match calls().find(|(_, asked)| asked.position == Some(named)) {
            Some((_, Asked { is_answered: true, .. })) => Answers::Again,
            Some((index, _)) => Answers::Call(index),
            None => Answers::Nothing,
        };
    }
    let id = result.call_id.as_deref().unwrap_or_default();
    let is_named =
        |asked: &Asked<&str>| !id.is_empty() && (asked.id == id || asked.given_id == Some(id));
    let by_index = |asked: &Asked<&str>| {
        (id.is_empty() || asked.given_id.is_none())
            && result.name.as_deref().is_none_or(|name| name == asked.name)
    };
    let is_known = calls().any(|(_, asked)| is_named(asked));
    let found = calls().find(|(_, asked)| {
        !asked.is_answered && if is_known { is_named(asked) } else { by_index(asked) }
    });
    match found {
        Some((index, _)) => Answers::Call(index),
        None if is_known => Answers::Again,
        None => Answers::Nothing,
    }
}

fn plain_next(result: &ToolResult, calls: &mut [Asked<&str>]) -> Answers {
    let found = plain_answer(result, calls);
    if let Answers::Call(index) = found {
        calls[index].is_answered = true;
    }
    found
}

/// The rule for a round, with everything paired anew.
fn plain_round(mut calls: Vec<Asked<&str>>, last: usize, results: &[&ToolResult]) -> Vec<Answers> {
    let mut paired = vec![Answers::Nothing; results.len()];
    for (index, result) in results.iter().enumerate().filter(|(_, it)| it.call.is_some()) {
        paired[index] = plain_next(result, &mut calls);
    }
    let by_id = || results.iter().enumerate().filter(|(_, result)| result.call.is_none());
    if last > 0 && last <= calls.len() {
        let mut of_last = calls[last..].to_vec();
        let found: Vec<_> = by_id().map(|(_, it)| plain_next(it, &mut of_last)).collect();
        let names_one = |result: &ToolResult, calls: &[Asked<&str>]| {
            let id = result.call_id.as_deref().unwrap_or_default();
            let mut calls = calls.iter();
            !id.is_empty() && calls.any(|asked| asked.id == id || asked.given_id == Some(id))
        };
        let is_of_before =
            |it: &ToolResult| names_one(it, &calls[..last]) && !names_one(it, &calls[last..]);
        let fits = !by_id().any(|(_, it)| is_of_before(it));
        if fits && found.iter().all(|found| matches!(found, Answers::Call(_))) {
            for ((result, _), found) in by_id().zip(found) {
                let Answers::Call(call) = found else { unreachable!() };
                paired[result] = Answers::Call(last + call);
            }
            return paired;
        }
    }
    for (index, result) in by_id() {
        paired[index] = plain_next(result, &mut calls);
    }
    paired
}

fn position(index: usize) -> CallPosition {
    let message = MessageId { run: RunId::from_bytes([7; 16]), index: 3 };
    CallPosition { message, index: u32::try_from(index).unwrap() }
}

/// Calls with the ids by which they are answered: some of their own, some made.
fn calls(rng: &mut Rng, count: usize) -> Vec<(ToolCall, String)> {
    let call = |rng: &mut Rng, index: usize| {
        let mut call = ToolCall::without_id(NAMES[rng.below(3)], "{}");
        call.id = IDS[rng.below(5)].map(str::to_owned);
        let id = match rng.below(3) {
            0 => format!("made_{index}"),
            _ => call.id.clone().unwrap_or_else(|| format!("made_{index}")),
        };
        (call, id)
    };
    (0..count).map(|index| call(rng, index)).collect()
}

fn results(rng: &mut Rng, calls: usize, count: usize) -> Vec<ToolResult> {
    let result = |rng: &mut Rng, index: usize| {
        let mut result = ToolResult::new("", format!("result {index}"));
        result.call_id = match rng.below(4) {
            0 => Some(format!("made_{}", rng.below(calls + 1))),
            _ => IDS[rng.below(5)].map(str::to_owned),
        };
        result.name = (rng.one_in(3)).then(|| NAMES[rng.below(3)].to_owned());
        result.call = (rng.one_in(5)).then(|| position(rng.below(calls + 1)));
        result
    };
    (0..count).map(|index| result(rng, index)).collect()
}

fn asked(calls: &[(ToolCall, String)]) -> Vec<Asked<&str>> {
    let asked = calls.iter().enumerate();
    asked.map(|(index, (call, id))| Asked::new(call, Some(position(index)), id, false)).collect()
}

#[test]
fn an_index_and_a_look_at_every_call_pair_the_same() {
    for seed in 0..4000 {
        let mut rng = Rng::of(seed);
        let count = rng.below(8);
        let calls = calls(&mut rng, count);
        let results = results(&mut rng, count, 12);
        let mut plain = asked(&calls);
        let mut indexed = Pairing::with_index_beyond(0, asked(&calls));
        let mut looked_at = Pairing::new(asked(&calls));
        for result in &results {
            let mut visible: Vec<usize> = (0..count).collect();
            let hidden = (count > 0 && rng.one_in(4)).then(|| rng.below(count));
            if let Some(hidden) = hidden {
                visible.remove(hidden);
                indexed.set_hidden(hidden, true);
                looked_at.set_hidden(hidden, true);
            }
            let among: Vec<_> = visible.iter().map(|index| plain[*index]).collect();
            let expected = match plain_answer(result, &among) {
                Answers::Call(index) => Answers::Call(visible[index]),
                other => other,
            };
            if let Answers::Call(index) = expected {
                plain[index].is_answered = true;
            }
            assert_eq!(indexed.answer(result), expected, "seed {seed}: {calls:?} {result:?}");
            assert_eq!(looked_at.answer(result), expected, "seed {seed}: {calls:?} {result:?}");
            if let Some(hidden) = hidden {
                indexed.set_hidden(hidden, false);
                looked_at.set_hidden(hidden, false);
            }
            if count > 0 && rng.one_in(4) {
                let index = rng.below(count);
                let is_answered = rng.below(2) == 0;
                plain[index].is_answered = is_answered;
                indexed.set_answered(index, is_answered);
                looked_at.set_answered(index, is_answered);
            }
        }
    }
}

#[test]
fn a_round_is_paired_the_same_at_once_and_result_by_result() {
    let (mut anew, mut together) = (0, 0);
    for seed in 0..4000 {
        let mut rng = Rng::of(seed);
        // Beyond sixteen calls there is an index.
        let count = if rng.below(2) == 0 { rng.below(8) } else { 17 + rng.below(8) };
        let calls = calls(&mut rng, count);
        let last = rng.below(count + 1);
        let results = results(&mut rng, count, 20);
        let results: Vec<&ToolResult> = results.iter().collect();
        let (mut pairing, found) = RoundPairing::of(asked(&calls), last, &[]);
        assert_eq!(found, []);
        let mut paired: Vec<Answers> = Vec::new();
        for end in 1..=results.len() {
            match pairing.push(results[end - 1]) {
                Some(found) => {
                    paired.push(found);
                    together += 1;
                }
                None => {
                    (pairing, paired) = RoundPairing::of(asked(&calls), last, &results[..end]);
                    anew += 1;
                }
            }
            let expected = plain_round(asked(&calls), last, &results[..end]);
            assert_eq!(paired, expected, "seed {seed}: {calls:?}, last {last}, {results:?}");
            for call in 0..count {
                let is_answered = expected.contains(&Answers::Call(call));
                assert_eq!(pairing.is_answered(call), is_answered, "seed {seed}, call {call}");
            }
            let at_once = RoundPairing::of(asked(&calls), last, &results[..end]).1;
            assert_eq!(at_once, expected, "seed {seed}");
        }
    }
    assert!(anew > 0 && together > anew, "{anew} of {together}");
}
