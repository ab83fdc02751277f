//! Tests with whole histories: answers of several messages, approvals, late results and results
//! without a call.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::{
    ApprovalRequest, Message, Part, Role,
    pairing::{CallLog, LoggedResult, ResultPosition, open_round::STEPS},
};

/// Generates a history of several runs.
fn history(rng: &mut Rng) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut requests: Vec<ApprovalRequest> = Vec::new();
    for number in 0..3 + rng.below(12) {
        let mut message = match rng.below(8) {
            0..=2 => asking(rng, &mut requests, number),
            3 | 4 => {
                let results = (0..1 + rng.below(3)).map(|at| result(rng, format!("{number}.{at}")));
                Message::tool_results(results.collect::<Vec<_>>())
            }
            5 => match requests.pop() {
                Some(request) => Message::new(Role::User, vec![request.approve().into()]),
                None => Message::user(format!("question {number}")),
            },
            6 => Message::new(
                rng.pick([Role::User, Role::Tool, Role::System]),
                vec![call(rng).into()],
            ),
            _ => Message::assistant(format!("text {number}")),
        };
        if !rng.one_in(4) {
            message.id = Some(message_id(number));
        }
        messages.push(message);
    }
    messages
}

fn asking(rng: &mut Rng, requests: &mut Vec<ApprovalRequest>, number: usize) -> Message {
    let parts = (0..1 + rng.below(3)).map(|index| {
        let call = call(rng);
        if !rng.one_in(4) {
            return Part::from(call);
        }
        let request = ApprovalRequest::new(format!("approval {number} {index}"), call, true);
        requests.push(request.clone());
        request.into()
    });
    Message::new(Role::Assistant, parts.collect())
}

fn log_of(messages: &[Message]) -> CallLog {
    let mut log = CallLog::default();
    (1..).zip(messages).for_each(|(number, message)| log.push(number, message));
    log
}

/// Returns the results, by the message number and the index of the call that they answer.
fn answered(log: &CallLog) -> HashMap<(u64, u32), LoggedResult> {
    let calls = log.calls().iter();
    calls.filter_map(|call| Some(((call.message, call.index), call.result?))).collect()
}

#[test]
fn every_model_call_is_logged_once_and_no_two_calls_share_a_result() {
    let mut found = 0;
    for seed in 0..4000 {
        let messages = history(&mut Rng::of(seed));
        let log = log_of(&messages);
        let asked = (1..).zip(&messages).filter(|(_, message)| message.role == Role::Assistant);
        let asked = asked.flat_map(|(number, message)| {
            (0..).zip(message.asked_calls()).map(move |(index, call)| (number, index, call))
        });
        let asked = asked.map(|(number, index, call)| (number, index, call.name.as_str()));
        let logged = log.calls().iter().map(|it| (it.message, it.index, it.call.tool.as_str()));
        assert_eq!(logged.collect::<Vec<_>>(), asked.collect::<Vec<_>>(), "seed {seed}");
        let mut results: HashSet<ResultPosition> = HashSet::new();
        for call in log.calls() {
            let Some(result) = call.result else { continue };
            found += 1;
            let position = result.position;
            assert!(results.insert(position), "seed {seed}: one result of two calls {call:?}");
            assert!(position.message > call.message, "seed {seed}: before its call {call:?}");
            let message = &messages[usize::try_from(position.message - 1).unwrap()];
            let result = message.results().nth(position.index as usize).unwrap();
            let id = result.call_id.as_deref().filter(|id| !id.is_empty());
            let given = call.call.given_id.as_deref();
            let agree = id.is_none() || given.is_none() || id == given || id == Some(&call.call.id);
            assert!(agree, "seed {seed}: {call:?} {result:?}");
        }
    }
    assert!(found > 2000, "{found}");
}

#[test]
fn calls_of_one_round_have_different_ids() {
    for seed in 0..4000 {
        let log = log_of(&history(&mut Rng::of(seed)));
        let ids: HashSet<_> = log.calls().iter().map(|call| (call.round, &call.call.id)).collect();
        assert_eq!(ids.len(), log.calls().len(), "seed {seed}");
    }
}

/// Returns an answer with these calls, either in one message or with one message for each call.
fn answer_of(calls: &[ToolCall], is_split: bool) -> Vec<Message> {
    match is_split {
        true => calls.iter().map(|call| Message::tool_calls([call.clone()])).collect(),
        false => vec![Message::tool_calls(calls.to_vec())],
    }
}

/// If all calls of a round have their results, these results are matched with the same calls,
/// whether the calls are in one message or in several.
#[test]
fn a_complete_round_is_matched_the_same_if_its_calls_are_in_one_or_several_messages() {
    for seed in 0..4000 {
        let mut rng = Rng::of(seed);
        let calls: Vec<ToolCall> = (0..2 + rng.below(3)).map(|_| call(&mut rng)).collect();
        let mut texts = Vec::new();
        for is_split in [false, true] {
            let mut messages = answer_of(&calls, is_split);
            let results = calls.iter().enumerate().map(|(index, call)| {
                let mut result = ToolResult::new("", index.to_string());
                result.call_id.clone_from(&call.id);
                result
            });
            messages.push(Message::tool_results(results.collect::<Vec<_>>()));
            for (index, message) in messages.iter_mut().enumerate() {
                message.id = Some(message_id(index));
            }
            let log = log_of(&messages);
            let of_call = log.calls().iter().map(|call| call.result.map(|it| it.position.index));
            texts.push(of_call.collect::<Vec<_>>());
        }
        let in_order: Vec<_> = (0..u32::try_from(calls.len()).unwrap()).map(Some).collect();
        assert_eq!(texts, [in_order.clone(), in_order], "seed {seed}: {calls:?}");
    }
}

#[test]
fn the_first_late_result_answers_its_call_and_a_result_before_the_call_answers_nothing() {
    let asking = |id: &str| Message::tool_calls([ToolCall::new(id, "look", "{}")]);
    let found = |id: &str| Message::tool_results([ToolResult::new(id, "found")]);
    let log = log_of(&[asking("a"), Message::user("well?"), asking("b"), found("a"), found("a")]);
    let at =
        |message| LoggedResult { position: ResultPosition { message, index: 0 }, is_error: false };
    assert_eq!(answered(&log), HashMap::from([((1, 0), at(4))]));
    let before = log_of(&[found("a"), asking("a")]);
    assert_eq!(answered(&before), HashMap::new());
}

#[test]
fn results_without_ids_after_approvals_answer_the_approved_calls() {
    let request = |id: &str| ApprovalRequest::new(id, ToolCall::without_id("pay", "{}"), true);
    let asking = |id: &str| Message::new(Role::Assistant, vec![request(id).into()]);
    let decisions = ["one", "two"].map(|id| Part::from(request(id).approve()));
    let mut paid = ToolResult::new("", "paid");
    paid.call_id = None;
    let log = log_of(&[
        asking("one"),
        Message::user("and?"),
        asking("two"),
        Message::new(Role::User, decisions.into()),
        Message::tool_results([paid.clone(), paid]),
    ]);
    let results: Vec<_> =
        log.calls().iter().map(|call| call.result.map(|it| it.position.index)).collect();
    assert_eq!(results, [Some(0), Some(1)]);
    assert!(log.calls().iter().all(|call| call.is_approved == Some(true)));
}

#[test]
fn matching_a_round_takes_linear_steps_even_if_each_result_is_in_its_own_message() {
    const CALLS: usize = 200;
    for ids in [(|_| "c".to_owned()) as fn(usize) -> String, |index| format!("c{index}")] {
        let calls = (0..CALLS).map(|index| ToolCall::new(ids(index), "look", "{}"));
        let mut log = CallLog::default();
        log.push(0, &Message::tool_calls(calls));
        STEPS.with(|steps| steps.set(0));
        for index in 0..CALLS {
            let result = Message::tool_results([ToolResult::new(ids(index), "found")]);
            log.push(index as u64 + 1, &result);
        }
        assert!(log.calls().iter().all(|call| call.result.is_some()));
        let steps = STEPS.with(std::cell::Cell::get);
        assert!(steps <= 2 * CALLS, "{steps} steps for {CALLS} results");
    }
}
