//! Tests of the matchers against a plain implementation of the rules.

use super::*;
use crate::pairing::{Answers, Candidate, Ids, Matcher, RoundMatcher, Target};

/// Finds a call by the rules of a matcher, by a check of every call.
fn plain_find(target: Target<'_>, calls: &[Candidate<&str>], ids: Ids) -> Answers {
    let calls = || calls.iter().enumerate();
    if let Some(named) = target.position {
        return match calls().find(|(_, call)| call.position == Some(named)) {
            Some((_, Candidate { is_answered: true, .. })) => Answers::Again,
            Some((index, _)) => Answers::Call(index),
            None => Answers::Nothing,
        };
    }
    let has_id = |call: &Candidate<&str>| {
        target.id.is_some_and(|id| call.id == id || call.given_id == Some(id))
    };
    let in_order = |call: &Candidate<&str>| {
        let may_lack_id = match ids {
            Ids::MayBeMissing => target.id.is_none() || call.given_id.is_none(),
            Ids::Required => target.id.is_none() && call.given_id.is_none(),
        };
        may_lack_id && target.tool.is_none_or(|tool| tool == call.tool)
    };
    let is_known = calls().any(|(_, call)| has_id(call));
    let found = calls().find(|(_, call)| {
        !call.is_answered && if is_known { has_id(call) } else { in_order(call) }
    });
    match found {
        Some((index, _)) => Answers::Call(index),
        None if is_known => Answers::Again,
        None => Answers::Nothing,
    }
}

fn plain_answer(target: Target<'_>, calls: &mut [Candidate<&str>]) -> Answers {
    let found = plain_find(target, calls, Ids::MayBeMissing);
    if let Answers::Call(index) = found {
        calls[index].is_answered = true;
    }
    found
}

/// Matches all results of a round, by the rules of a round, from the beginning.
fn plain_round(
    mut calls: Vec<Candidate<&str>>,
    last: usize,
    results: &[Target<'_>],
) -> Vec<Answers> {
    let mut answers = vec![Answers::Nothing; results.len()];
    for (index, result) in results.iter().enumerate().filter(|(_, it)| it.position.is_some()) {
        answers[index] = plain_answer(*result, &mut calls);
    }
    let others = || results.iter().enumerate().filter(|(_, result)| result.position.is_none());
    if last > 0 && last <= calls.len() {
        let mut of_last = calls[last..].to_vec();
        let found: Vec<_> = others().map(|(_, it)| plain_answer(*it, &mut of_last)).collect();
        let has_id = |target: &Target<'_>, calls: &[Candidate<&str>]| {
            let is_it = |call: &Candidate<&str>, id| call.id == id || call.given_id == Some(id);
            target.id.is_some_and(|id| calls.iter().any(|call| is_it(call, id)))
        };
        let is_of_before =
            |it: &Target<'_>| has_id(it, &calls[..last]) && !has_id(it, &calls[last..]);
        let fits = !others().any(|(_, it)| is_of_before(it));
        if fits && found.iter().all(|found| matches!(found, Answers::Call(_))) {
            for ((result, _), found) in others().zip(found) {
                let Answers::Call(call) = found else { unreachable!() };
                answers[result] = Answers::Call(last + call);
            }
            return answers;
        }
    }
    for (index, result) in others() {
        answers[index] = plain_answer(*result, &mut calls);
    }
    answers
}

/// Generates calls, each with the id by which results refer to the call: its own id or a generated
/// id.
fn calls(rng: &mut Rng, count: usize) -> Vec<(ToolCall, String)> {
    let calls: Vec<_> = (0..count).map(|_| call(rng)).collect();
    let with_id = |(index, call): (usize, ToolCall)| {
        let made = || format!("made_{index}");
        let id = if rng.one_in(3) { made() } else { call.id.clone().unwrap_or_else(made) };
        (call, id)
    };
    calls.into_iter().enumerate().map(with_id).collect()
}

fn results(rng: &mut Rng, calls: usize, count: usize) -> Vec<ToolResult> {
    let result = |index: usize| {
        let mut result = result(rng, format!("result {index}"));
        if rng.one_in(4) {
            result.call_id = Some(format!("made_{}", rng.below(calls + 1)));
        }
        result.call = rng.one_in(5).then(|| position(3, rng.below(calls + 1)));
        result
    };
    (0..count).map(result).collect()
}

fn candidates(calls: &[(ToolCall, String)]) -> Vec<Candidate<&str>> {
    let calls = calls.iter().enumerate();
    calls.map(|(index, (call, id))| Candidate::new(call, Some(position(3, index)), id)).collect()
}

#[test]
fn a_matcher_finds_the_same_call_as_a_linear_search() {
    for (seed, ids) in (0..1000).zip([Ids::MayBeMissing, Ids::Required].into_iter().cycle()) {
        let mut rng = Rng::of(seed);
        let count = rng.below(8);
        let calls = calls(&mut rng, count);
        let results = results(&mut rng, count, 12);
        let mut plain = candidates(&calls);
        let mut matcher = Matcher::new(Vec::new(), ids);
        plain.iter().for_each(|call| matcher.push(*call));
        for result in &results {
            let mut visible: Vec<usize> = (0..count).collect();
            let hidden = (count > 0 && rng.one_in(4)).then(|| rng.below(count));
            if let Some(hidden) = hidden {
                visible.remove(hidden);
                matcher.set_hidden(hidden, true);
            }
            let among: Vec<_> = visible.iter().map(|index| plain[*index]).collect();
            let expected = match plain_find(result.into(), &among, ids) {
                Answers::Call(index) => Answers::Call(visible[index]),
                other => other,
            };
            if let Answers::Call(index) = expected {
                plain[index].is_answered = true;
            }
            assert_eq!(matcher.answer(result), expected, "seed {seed}: {calls:?} {result:?}");
            if let Some(hidden) = hidden {
                matcher.set_hidden(hidden, false);
            }
            if count > 0 && rng.one_in(4) {
                let index = rng.below(count);
                let is_answered = rng.one_in(2);
                plain[index].is_answered = is_answered;
                matcher.set_answered(index, is_answered);
            }
        }
    }
}

#[test]
fn a_round_is_matched_the_same_all_at_once_and_one_result_at_a_time() {
    let (mut anew, mut appended) = (0, 0);
    for seed in 0..1000 {
        let mut rng = Rng::of(seed);
        let count = if rng.one_in(2) { rng.below(8) } else { 17 + rng.below(8) };
        let calls = calls(&mut rng, count);
        let last = rng.below(count + 1);
        let results = results(&mut rng, count, 20);
        let results: Vec<Target<'_>> = results.iter().map(Target::from).collect();
        let mut round = RoundMatcher::new(candidates(&calls), last);
        assert_eq!(round.answers(), []);
        for end in 1..=results.len() {
            match round.extend([results[end - 1]]) {
                true => appended += 1,
                false => anew += 1,
            }
            let expected = plain_round(candidates(&calls), last, &results[..end]);
            assert_eq!(round.answers(), expected, "seed {seed}: {calls:?}, last {last}");
            for call in 0..count {
                let is_answered = expected.contains(&Answers::Call(call));
                assert_eq!(round.is_answered(call), is_answered, "seed {seed}, call {call}");
            }
            let mut at_once = RoundMatcher::new(candidates(&calls), last);
            at_once.extend(results[..end].iter().copied());
            assert_eq!(at_once.answers(), expected, "seed {seed}");
        }
    }
    assert!(anew > 0 && appended > anew, "{anew} of {appended}");
}
