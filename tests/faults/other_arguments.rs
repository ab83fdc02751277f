//! Approvals that contain other arguments than the call of the model. The tool runs with the
//! arguments of the decision, and the result of the tool reports them. The stored call keeps the
//! arguments of the model.

use std::sync::Arc;

use tower_chat::{
    Message, Part,
    PersistenceMode::{self, Journaled, PerRun, PerServiceCall},
};
use tower_chat_testkit::Rng;

use crate::faults::{
    SEED,
    case::{Attempt, Case},
    rules::{self, require},
    scenario::play,
    script::{Input, RunScript},
    trace::{Call, Event, in_lines},
    trace_index::TraceIndex,
    world::{FaultPlan, World},
};

/// The beginning of the sentence that reports the arguments of an approval to the model.
const SENTENCE: &str = "[The call was approved with other arguments. The tool was called with ";

/// Returns the arguments with which the input of a run approves a call, or `None` if the call is
/// approved as it is.
pub(crate) fn of_decision(case: &Case, run: usize, call: &str) -> Option<String> {
    let number = call.bytes().fold(run as u64, |number, byte| number * 256 + u64::from(byte));
    let is_changed = case.changes_arguments && Rng::of(case.seed, number).one_in(2);
    is_changed.then(|| format!(r#"["{call}","run{run}"]"#))
}

/// Returns whether the arguments are those of a decision instead of those of the model.
pub(crate) fn are_of_decision(arguments: &str) -> bool {
    arguments.starts_with("[\"")
}

/// Returns the arguments that a result reports at its end.
pub(crate) fn reported(result: &str) -> Option<&str> {
    let (_, reported) = result.split_once(SENTENCE)?;
    Some(reported.strip_suffix(']').unwrap_or("the sentence is not the end of the result"))
}

/// Checks that a run has called a tool with the arguments of the last decision in its requests, or
/// with those of the model if the decision has none.
pub(crate) fn check_execution(
    call: &Call,
    arguments: &str,
    run: usize,
    at: usize,
    index: &TraceIndex<'_>,
) -> Result<(), String> {
    let decided = index.trace[..at].iter().rev().find_map(|event| match event {
        Event::Began { run: of_run, answers, changed } if *of_run == run => {
            let is_decided = index.call(&call.id).is_some_and(|(of, _)| answers.contains(&of));
            is_decided.then_some(changed)
        }
        _ => None,
    });
    let changed = decided.into_iter().flatten().find(|(id, _)| *id == call.id);
    let right = changed.map_or(&call.arguments, |(_, arguments)| arguments);
    require(arguments == right, || {
        format!("the tool of call {} ran with {arguments} instead of {right}", call.id)
    })
}

/// Checks that a result reports the arguments with which its tool was called, if a decision contained
/// these arguments. Returns the result without the report.
pub(crate) fn check_result<'r>(
    call: &Call,
    result: &'r str,
    index: &TraceIndex<'_>,
) -> Result<&'r str, String> {
    let token = result.split_once('~').map_or(result, |(token, _)| token);
    let right = format!("{token}{}", report_of(token, index));
    require(result == right, || {
        format!("call {} has the result {result} instead of {right}", call.id)
    })?;
    Ok(token)
}

/// Returns the end of the label of the result of an execution.
pub(crate) fn report_of(token: &str, index: &TraceIndex<'_>) -> String {
    let began = index.trace.iter().find_map(|event| match event {
        Event::Started { token: of, arguments, .. } if of == token => Some(arguments),
        _ => None,
    });
    let reported = began.filter(|arguments| are_of_decision(arguments));
    reported.map(|arguments| format!("~{arguments}")).unwrap_or_default()
}

/// Checks the results in the requests that the model has received.
pub(crate) fn check_shown(index: &TraceIndex<'_>) -> Result<(), String> {
    for event in index.trace {
        let Event::Asked { shown, .. } = event else { continue };
        let results = shown.iter().filter(|label| label.starts_with("tool:"));
        for result in results.flat_map(|label| label.split_whitespace().skip(1)) {
            let Some((id, result)) = result.split_once('=') else { continue };
            let Some((_, call)) = index.call(id) else { continue };
            check_result(call, result, index)?;
        }
    }
    Ok(())
}

/// Checks that the calls in these messages have the arguments of the model, and that the decisions
/// in the input of each run have the arguments that its caller has sent.
pub(crate) fn check_messages<'m>(
    world: &World,
    messages: impl IntoIterator<Item = &'m Arc<Message>>,
    index: &TraceIndex<'_>,
) -> Result<(), String> {
    for message in messages {
        let mut decided = Vec::new();
        for part in &message.parts {
            let call = match part {
                Part::ToolCall(call) => call,
                Part::ApprovalRequest(request) => &request.call,
                Part::ApprovalResponse(response) => {
                    decided.extend(response.arguments.as_deref());
                    continue;
                }
                _ => continue,
            };
            let known = index.call(call.id.as_deref().unwrap_or_default());
            let is_as_called = known.is_some_and(|(_, known)| known.arguments == call.arguments);
            require(is_as_called, || format!("{call:?} has other arguments than {known:?}"))?;
        }
        let Some(id) = message.id else { continue };
        let of_run = world.run_of(id.run);
        let is_sent = |event: &Event| match event {
            Event::Began { run, changed, .. } => {
                *run == of_run && changed.iter().map(|(_, arguments)| arguments).eq(&decided)
            }
            _ => false,
        };
        require(decided.is_empty() || index.trace.iter().any(is_sent), || {
            format!("the input of run {of_run} has decisions with {decided:?}")
        })?;
    }
    Ok(())
}

/// Creates a conversation whose last run approves calls, a part of them with other arguments, and
/// has these faults.
fn case(mode: PersistenceMode, streamed: bool, fault_plan: FaultPlan) -> Case {
    let runs = vec![
        RunScript { input: Input::Text, rounds: vec![vec!["again", "pay", "again", "pay"]] },
        RunScript { input: Input::Approve, rounds: Vec::new() },
    ];
    Case {
        changes_arguments: true,
        faulty_run: 1,
        attempts: vec![Attempt { fault_plan, restarts: true, ..Attempt::default() }],
        ..Case::plain(SEED, mode, streamed, runs)
    }
}

/// More than the number of steps of the run in every mode.
const STEPS: u64 = 50;

#[test]
fn approved_calls_have_the_arguments_of_their_decision_after_a_fault_at_any_step() {
    let modes = [PerRun, PerServiceCall, Journaled].into_iter();
    for (mode, step) in modes.flat_map(|mode| (1..=STEPS).map(move |step| (mode, step))) {
        let kill = FaultPlan { kill_at: Some(step), ..FaultPlan::default() };
        let fails = FaultPlan { faults: vec![(step, 1)], ..FaultPlan::default() };
        for (streamed, plan) in [(step % 2 == 0, kill), (step % 2 == 1, fails)] {
            let (trace, played) = play(&case(mode, streamed, plan));
            if let Err(failure) = played {
                let context = format!("{mode:?}, streamed: {streamed}, step {step}");
                panic!("{context}: {failure}\n{}", in_lines(&trace));
            }
        }
    }
}

#[test]
fn a_call_or_a_result_with_the_wrong_arguments_is_found() {
    let case = case(Journaled, false, FaultPlan::default());
    let (trace, played) = play(&case);
    played.unwrap();
    rules::check(&case, &TraceIndex::of(&trace)).unwrap();
    let is_changed = |event: &Event| matches!(event, Event::Started { arguments, .. } if are_of_decision(arguments));
    let changed = trace.iter().filter(|event| is_changed(event)).count();
    assert!(0 < changed && changed < 4, "{}", in_lines(&trace));

    let wrong = |change: &dyn Fn(&mut Event)| {
        let mut trace = trace.clone();
        trace.iter_mut().for_each(change);
        rules::check(&case, &TraceIndex::of(&trace)).unwrap_err()
    };
    for of_other in ["[0,0]", r#"["s9.9","run1"]"#] {
        let failure = wrong(&|event| {
            if let Event::Started { arguments, .. } = event {
                *arguments = of_other.to_owned();
            }
        });
        assert!(failure.contains("ran with"), "{failure}");
    }
    let without_report = |labels: &mut Vec<String>| {
        for label in labels {
            *label = label.replace(r#"~["s0.0","run1"]"#, "").replace(r#"~["s0.1","run1"]"#, "");
        }
    };
    for failure in [
        wrong(&|event| {
            if let Event::Stored { labels, .. } | Event::Submitted { labels, .. } = event {
                without_report(labels);
            }
        }),
        wrong(&|event| {
            if let Event::Asked { shown, .. } = event {
                without_report(shown);
            }
        }),
    ] {
        assert!(failure.contains("has the result"), "{failure}");
    }
}
