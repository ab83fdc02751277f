//! The rules of the contract for service calls, tools and callers, apart from the history.

use std::collections::{HashMap, HashSet};

use tower_chat::PersistenceMode;

use crate::faults::{
    case::Case,
    other_arguments,
    process::serial_of,
    trace::{Call, Event, Outcome},
    trace_index::{AttemptAt, TraceIndex},
};

pub(crate) fn check(case: &Case, index: &TraceIndex<'_>) -> Result<(), String> {
    check_calls(case, index)?;
    answers_are_paid_once(case, index)?;
    for attempt in index.attempts() {
        callers_receive_the_true_outcome(case, &attempt, index)?;
        nothing_is_lost_at_the_end_of(case, &attempt, index)?;
    }
    Ok(())
}

pub(crate) fn check_calls(case: &Case, index: &TraceIndex<'_>) -> Result<(), String> {
    tools_run_as_often_as_declared(case, index)?;
    results_are_what_happened(case, index)?;
    other_arguments::check_shown(index)
}

/// Checks the executions of tools:
///
/// - A finished tool call never runs again.
/// - A tool call with an unknown outcome runs again only if the tool or the case allows it.
/// - No tool runs without a required approval.
/// - In modes that store the start of a tool, the tool runs only after its start is durable.
fn tools_run_as_often_as_declared(case: &Case, index: &TraceIndex<'_>) -> Result<(), String> {
    let mut keys: HashMap<&str, &str> = HashMap::new();
    let mut ran: HashSet<&str> = HashSet::new();
    for (at, event) in index.trace.iter().enumerate() {
        let Event::Started { run, call, key, token, arguments } = event else { continue };
        let Some((serial, known)) = index.call(call) else {
            return Err(format!("{token} ran, but no answer contains its call"));
        };
        let waits = index.answers[&serial].waits;
        if waits && !is_approved(serial, at, case, index) {
            return Err(format!("{token} ran without consent"));
        }
        other_arguments::check_execution(known, arguments, *run, at, index)?;
        let has_record = waits || case.mode == PersistenceMode::Journaled;
        if has_record && !index.is_started_on_disk(call, at) {
            return Err(format!("{token} ran before its start was durable"));
        }
        if !ran.insert(call) {
            let may_run_again = has_record && (known.tool == "again" || case.run_again);
            require(may_run_again, || format!("{token}: the call had run before"))?;
            let done = index.results_of(call).iter().find(|(stored, _)| *stored < at).copied();
            require(done.is_none(), || format!("{token}: its result was {done:?} already"))?;
        }
        let known_key = keys.entry(call).or_insert(key);
        require(*known_key == key, || format!("{token} got {key:?}, and {known_key:?} before"))?;
    }
    // In the other modes, a run whose messages are lost starts from the beginning. Its new calls
    // then have the positions, and therefore the keys, of the lost calls.
    if case.mode != PersistenceMode::Journaled {
        return Ok(());
    }
    let distinct: HashSet<&&str> = keys.values().collect();
    require(distinct.len() == keys.len(), || format!("calls share a key: {keys:?}"))
}

fn is_approved(serial: u32, before: usize, case: &Case, index: &TraceIndex<'_>) -> bool {
    index.trace[..before].iter().any(|event| match event {
        Event::Began { run, answers, .. } => {
            answers.contains(&serial)
                && case
                    .runs
                    .get(*run)
                    .is_some_and(|run| run.input == crate::faults::script::Input::Approve)
        }
        _ => false,
    })
}

/// Returns whether the input of a run decides about the calls in the answer to the service call
/// `serial`.
fn decides_about(serial: u32, of: usize, index: &TraceIndex<'_>) -> bool {
    index.trace.iter().any(|event| match event {
        Event::Began { run, answers, .. } => *run == of && answers.contains(&serial),
        _ => false,
    })
}

fn results_are_what_happened(case: &Case, index: &TraceIndex<'_>) -> Result<(), String> {
    let calls: Vec<(u32, &Call, bool, usize)> = index
        .answers
        .iter()
        .flat_map(|(serial, answer)| {
            answer.calls.iter().map(|call| (*serial, call, answer.waits, answer.run))
        })
        .collect();
    for (serial, call, waits, run) in calls {
        let results = index.results_of(&call.id);
        let Some((at, result)) = results.first().copied() else { continue };
        require(results.len() == 1, || format!("call {} has results {results:?}", call.id))?;
        let result = other_arguments::check_result(call, result, index)?;
        let began = index.trace[..at]
            .iter()
            .filter(|event| matches!(event, Event::Started { call: of, .. } if *of == call.id))
            .count();
        let has_record = waits || case.mode == PersistenceMode::Journaled;
        // The result of a call that waits for approval is stored by the run that decides about it.
        let decides = |event: &Event| match event {
            Event::Stored { run, .. } => {
                index.is_closed_as_it_was(*run) && decides_about(serial, *run, index)
            }
            _ => false,
        };
        let is_closed_as_it_was =
            index.is_closed_as_it_was(run) || (waits && index.trace.get(at).is_some_and(decides));
        let allowed = match result {
            "?" => {
                has_record
                    && index.is_started_on_disk(&call.id, at)
                    && ((call.tool != "again" && !case.run_again) || is_closed_as_it_was)
            }
            "never" => began == 0 && is_closed_as_it_was,
            "refused" => waits && began == 0,
            token => index.trace[..at]
                .iter()
                .any(|event| matches!(event, Event::Finished { token: of } if of == token)),
        };
        require(allowed, || format!("call {} cannot have the result {result:?}", call.id))?;
    }
    Ok(())
}

/// Checks that in journaled mode, every service call sends all durable answers of its run. A
/// resumed run therefore never requests a paid answer again.
pub(crate) fn answers_are_paid_once(case: &Case, index: &TraceIndex<'_>) -> Result<(), String> {
    if case.mode != PersistenceMode::Journaled {
        return Ok(());
    }
    for (at, event) in index.trace.iter().enumerate() {
        let Event::Asked { run, serial, shown } = event else { continue };
        let mut durable: Vec<_> =
            index.answers.iter().filter(|(_, answer)| answer.run == *run).collect();
        durable.retain(|(serial, _)| {
            index.stored_at(&index.answer_label(**serial)).is_some_and(|stored| stored < at)
        });
        for (earlier, answer) in durable {
            let label = format!("assistant:a{earlier}");
            let is_shown = shown.iter().any(|shown| {
                shown.strip_prefix(&label).is_some_and(|rest| !rest.starts_with(char::is_numeric))
            });
            require(is_shown || answer.waits, || {
                format!("service call {serial} was made although {earlier} was durable")
            })?;
        }
    }
    Ok(())
}

/// Checks that a process loses at most one answer if another process takes over its run. The store
/// refuses the write of this answer, and the first process makes no other service call.
pub(crate) fn one_answer_is_lost_at_most(
    case: &Case,
    run: usize,
    index: &TraceIndex<'_>,
) -> Result<(), String> {
    if case.mode != PersistenceMode::Journaled {
        return Ok(());
    }
    let of_run = index.answers.iter().filter(|(_, answer)| answer.run == run);
    let lost = of_run.filter(|(serial, _)| !index.is_stored(&index.answer_label(**serial))).count();
    let is_failure =
        |event: &&Event| matches!(event, Event::Ended { outcome: Outcome::Error(_), .. });
    let failures = index.trace.iter().filter(is_failure).count();
    require(lost <= failures, || format!("{lost} answers are lost in {failures} failures"))
}

/// Checks that acknowledged messages are durable, and that no caller receives an error without a
/// fault.
fn callers_receive_the_true_outcome(
    case: &Case,
    attempt: &AttemptAt<'_>,
    index: &TraceIndex<'_>,
) -> Result<(), String> {
    match attempt.outcome {
        Outcome::Answer { labels, unsaved: 0 } => {
            for label in labels.iter().filter(|label| label.starts_with("assistant:")) {
                let stored = index.stored_at(label).is_some_and(|at| at < attempt.to);
                require(stored, || format!("{label:?} was acknowledged, and is not durable"))?;
            }
            Ok(())
        }
        Outcome::Answer { unsaved, .. } => {
            let honest = !attempt.had_a_working_store() && !case.fail_call;
            require(honest || had_trouble_before(attempt, index), || {
                format!(
                    "{unsaved} messages of run {} are unsaved without a fault of the store",
                    attempt.run
                )
            })
        }
        Outcome::Error(error) => {
            let is_claimed = error.contains(CLAIMED) && had_trouble_before(attempt, index);
            let has_cause =
                attempt.had_faults() || answers_again(error, attempt, index) || is_claimed;
            require(has_cause, || {
                format!("run {} failed although no fault was injected: {error}", attempt.run)
            })
        }
        Outcome::Gone | Outcome::Killed => Ok(()),
    }
}

/// The text of the error about an approved call that another attempt has claimed.
pub(crate) const CLAIMED: &str = "was claimed by another process";

pub(crate) const ANSWERED_ALREADY: &str = "has a result already";

/// Returns whether the attempt failed because it decides about a call that already has a result.
fn answers_again(error: &str, attempt: &AttemptAt<'_>, index: &TraceIndex<'_>) -> bool {
    let answered = attempt.events.iter().find_map(|event| match event {
        Event::Began { answers, .. } => Some(answers),
        _ => None,
    });
    let mut calls = answered.into_iter().flatten().flat_map(|serial| index.answers[serial].calls);
    error.contains(ANSWERED_ALREADY) && calls.any(|call| has_result(&call.id, attempt, index))
}

/// Returns whether a result of the call was stored before the attempt ended, or received by a
/// caller before the attempt began. In the second case, the message may still be in the outbox
/// (writes to submit again).
fn has_result(call: &str, attempt: &AttemptAt<'_>, index: &TraceIndex<'_>) -> bool {
    let is_stored = index.results_of(call).first().is_some_and(|(stored, _)| *stored < attempt.to);
    let prefix = format!("{call}=");
    let is_result = |label: &String| label.split_whitespace().any(|word| word.starts_with(&prefix));
    let was_received = index.trace[..attempt.from].iter().any(|event| match event {
        Event::Ended { outcome: Outcome::Answer { labels, .. }, .. } => {
            labels.iter().any(is_result)
        }
        _ => false,
    });
    is_stored || was_received
}

fn had_trouble_before(attempt: &AttemptAt<'_>, index: &TraceIndex<'_>) -> bool {
    index.attempts().iter().any(|other| other.from < attempt.from && !other.had_a_working_store())
}

/// Checks that all messages and outcomes are submitted to the store when a run ends or is cut off.
/// Only a killed process may lose some.
fn nothing_is_lost_at_the_end_of(
    case: &Case,
    attempt: &AttemptAt<'_>,
    index: &TraceIndex<'_>,
) -> Result<(), String> {
    if *attempt.outcome == Outcome::Killed || case.mode == PersistenceMode::PerRun {
        return Ok(());
    }
    let submitted: HashSet<&str> = index.trace[..=attempt.to]
        .iter()
        .filter_map(|event| match event {
            Event::Submitted { labels, .. } => Some(labels),
            _ => None,
        })
        .flatten()
        .map(String::as_str)
        .collect();
    let mut asked = None;
    // If the queue of the store is full, the message is added directly to the outbox.
    let may_wait = !attempt.had_a_working_store() && case.mode != PersistenceMode::Journaled;
    for event in attempt.events {
        match event {
            Event::Answered { serial, .. } => {
                let label = index.answer_label(*serial);
                require(may_wait || submitted.contains(label.as_str()), || {
                    format!("the answer to service call {serial} was never submitted")
                })?;
                asked = None;
            }
            Event::Asked { serial, .. } => asked = Some(serial),
            Event::Unanswered { .. } => asked = None,
            _ => {}
        }
    }
    if !attempt.had_a_working_store() || had_trouble_before(attempt, index) {
        return Ok(());
    }
    for event in attempt.events {
        let Event::Finished { token } = event else { continue };
        let call = token.split('#').next().unwrap_or_default();
        if case.mode == PersistenceMode::PerServiceCall && has_ended_the_run(call, attempt, index) {
            // The model never receives this result, and no message contains it. It is stored with
            // its call only if the caller waits until the end of the run.
            continue;
        }
        let report = other_arguments::report_of(token, index);
        let is_results = submitted.contains(format!("result {call}={token}{report}").as_str());
        require(is_results, || format!("{token} had finished, but no result was sent"))?;
    }
    if let (Some(serial), PersistenceMode::PerServiceCall) = (asked, case.mode) {
        let input = format!("user:run {}", attempt.run);
        let has_input = submitted.iter().any(|label| label.starts_with(&input));
        require(has_input, || format!("the input of service call {serial} is lost"))?;
        let before: Vec<u32> = attempt
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Finished { token } => Some(serial_of(token.split('#').next()?)),
                _ => None,
            })
            .collect();
        for serial in before {
            let is_kept = !index.result_labels(attempt.run, &[serial]).is_empty();
            require(is_kept, || format!("the results of service call {serial} are lost"))?;
        }
    }
    Ok(())
}

fn has_ended_the_run(call: &str, attempt: &AttemptAt<'_>, index: &TraceIndex<'_>) -> bool {
    let Some((serial, _)) = index.call(call) else { return false };
    index.answers[&serial].calls.iter().filter(|call| call.tool == "stop").any(|stop| {
        let prefix = format!("{}#", stop.id);
        let is_end = |event: &Event| {
            matches!(event, Event::Finished { token } if token.starts_with(&prefix))
        };
        attempt.events.iter().any(is_end)
    })
}

pub(crate) fn require(holds: bool, failure: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(failure()) }
}
