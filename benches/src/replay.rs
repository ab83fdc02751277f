//! The cost of replay.
//!
//! - `replay`: stored messages are replayed with all steps of a `ReplayPolicy`. Each step has
//!   something to change: half of the results are stale, a tool is no longer registered, some
//!   sources were not cited, and the oldest turns are outside the window. Floor: a deep clone of
//!   the messages. Bound: at most 4 times the floor.
//! - `replay_off`: the replay of a later run in the same conversation, without any step. It
//!   continues from the `Replay` of the earlier run. Floor: the same with 10 stored messages.
//!   Bound: at most 1.3 times the floor, or at most 1 us more than the floor.

use std::{
    hint::black_box,
    time::{Duration, Instant, SystemTime},
};

use tower_chat::{
    BoxError, Message, Part, Role,
    message::{MessageId, Messages},
    replay::{
        Citations, DanglingCalls, FinishTimes, Freshness, OutdatedCalls, Replay, ReplayContext,
        ReplayPolicy, Window, effective_call_ids,
    },
    run::RunId,
};

use crate::{
    Effort,
    report::{Line, Samples, us_since},
    workload,
};

const LONG: usize = 10_000;
const SHORT: usize = 10;
const TIMES_OFF: u32 = 1000;

const FOUND: &str = r#"[{"source_number": 0, "content": "The pass was closed for snow on Monday at six."}, {"source_number": 1, "content": "Northern Parcel delivers twice a week while the pass is closed."}, {"source_number": 2, "content": "A customer may have a parcel sent to a shop instead."}]"#;

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let stored = conversation(LONG);
    let plain: Vec<Message> = stored.iter().map(|message| (**message).clone()).collect();
    let times = finish_times(&stored);
    let policy = all_steps();
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for repetition in 0..effort.repetitions(60) {
        let mut clone = || {
            let start = Instant::now();
            let cloned = black_box(plain.clone());
            floor.add(us_since(start));
            drop(cloned);
        };
        if repetition % 2 == 0 {
            clone();
        }
        let start = Instant::now();
        let shown = black_box(replayed(&stored, &policy, &times));
        ours.add(us_since(start));
        drop(shown);
        if repetition % 2 == 1 {
            clone();
        }
    }
    Line::new("replay", "none", "none", LONG, ours.median(), floor.median()).print()?;
    Ok(())
}

pub(crate) fn measure_off(effort: Effort) -> Result<(), BoxError> {
    let counts = [SHORT, 1000, LONG];
    let folds = counts.map(|count| folded(&conversation(count)));
    let mut samples = counts.map(|_| Samples::default());
    let policy = ReplayPolicy::default();
    for _ in 0..effort.repetitions(200) {
        for (fold, samples) in folds.iter().zip(&mut samples) {
            let start = Instant::now();
            for _ in 0..TIMES_OFF {
                let fold = black_box(fold).clone();
                black_box(policy.apply(&fold.view(), &ReplayContext::at(SystemTime::UNIX_EPOCH)));
            }
            samples.add(us_since(start) / f64::from(TIMES_OFF));
        }
    }
    let floor = samples.first().map_or(f64::NAN, Samples::median);
    for (count, samples) in counts.into_iter().zip(&samples) {
        Line::new("replay_off", "none", "none", count, samples.median(), floor).print()?;
    }
    Ok(())
}

fn folded(stored: &Messages) -> Replay {
    let mut fold = Replay::new(DanglingCalls::Drop);
    fold.push_from(stored, 0);
    fold
}

pub(crate) fn replayed(stored: &Messages, policy: &ReplayPolicy, times: &FinishTimes) -> Messages {
    let tools = ["search_orders"];
    let context = ReplayContext::at(at(LONG)).with_tools(&tools).with_finish_times(times);
    policy.apply(&folded(stored).view(), &context)
}

pub(crate) fn all_steps() -> ReplayPolicy {
    ReplayPolicy::default()
        .with_freshness(Freshness::within(Duration::from_secs(LONG as u64 / 2)))
        .with_outdated_calls(OutdatedCalls::keep().drop_unregistered().drop_unreadable_arguments())
        .with_citations(Citations::default())
        .with_window(Window::tokens(212_000).with_low_water(210_000))
}

/// Returns stored turns (questions with everything up to their answers) with ids. Every second
/// result is a list of sources, and every eighth call names a tool that no longer exists.
pub(crate) fn conversation(count: usize) -> Messages {
    let run = RunId::from_bytes([1; 16]);
    let stored = workload::stored_messages(count);
    let messages = (0..).zip(stored).map(|(index, message)| {
        let mut message = (*message).clone();
        message.id = Some(MessageId { run, index });
        for part in &mut message.parts {
            match part {
                Part::ToolResult(result) if index % 4 == 0 => {
                    *result = result.with_content(vec![Part::text(FOUND)]);
                }
                Part::ToolCall(call) if index % 16 == 1 => {
                    call.name = "search_shops".to_owned();
                }
                Part::Text(text) if message.role == Role::Assistant => {
                    text.text.push_str(" [source1]");
                }
                _ => {}
            }
        }
        message
    });
    messages.collect()
}

/// Returns the end times of all calls. The calls of a message end one second after the calls of the
/// previous message.
pub(crate) fn finish_times(stored: &Messages) -> FinishTimes {
    let mut times = FinishTimes::new();
    for (position, message) in stored.iter().enumerate() {
        let Some(id) = message.id else { continue };
        for (index, call_id) in (0..).zip(effective_call_ids(message)) {
            times.insert(id, index, call_id, Some(at(position)));
        }
    }
    times
}

fn at(second: usize) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_something_to_do() {
        let stored = conversation(2000);
        let times = finish_times(&stored);
        let all = all_steps().with_freshness(Freshness::within(Duration::from_secs(9000)));
        let shown = |policy: ReplayPolicy| replayed(&stored, &policy, &times);
        let whole = shown(ReplayPolicy::default());
        for policy in [
            ReplayPolicy::default().with_freshness(all.freshness.clone()),
            ReplayPolicy::default().with_outdated_calls(all.outdated_calls),
            ReplayPolicy::default().with_citations(all.citations.clone()),
            ReplayPolicy::default().with_window(Window::tokens(60_000)),
        ] {
            assert_ne!(shown(policy), whole);
        }
        assert!(shown(all).len() < whole.len());
    }

    #[test]
    fn no_step_leaves_what_the_others_show_as_it_is() {
        let stored = conversation(LONG);
        let times = finish_times(&stored);
        let all = all_steps();
        let shown = replayed(&stored, &all, &times);
        for without_one in [
            all.clone().with_freshness(None),
            all.clone().with_outdated_calls(OutdatedCalls::keep()),
            all.clone().with_citations(None),
            all.clone().with_window(None),
        ] {
            assert_ne!(replayed(&stored, &without_one, &times), shown);
        }
        // The window contains nearly all messages. A smaller window would reduce the work of the
        // other steps.
        assert!(shown.len() > replayed(&stored, &all.with_window(None), &times).len() * 9 / 10);
    }
}
