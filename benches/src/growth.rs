//! What replay, import and the wires do with many calls of one conversation.
//!
//! - the mode is what is done:
//!   - `late_results`: results, one message each, of calls of one answer that were shown as
//!     interrupted; `late_rounds` are the same of calls of many answers with equal ids.
//!   - `split_open`: the same history is split where a call may still be answered.
//!   - `provider_results`: one message of calls that the provider ran, with results of other calls
//!     among their results.
//!   - `imported_steps`: a row with so many steps, whose results stand in a list of their own;
//!     `imported_equal_ids` is the same with one id for all, and in `imported_named` each step also has a
//!     call without an id, and a result for the one that the results name.
//!   - `nested`, `whole_answer`: a stream with a nested field in every piece, and the body of an answer
//!     with so many calls, as in [`crate::held`].
//!   - `finish_times`: the times of calls of one answer that have all the same id are filled in from
//!     their results, and stale results left out.
//!   - the names of wires: the body of a request with so many calls of one answer, which have all the
//!     same id, and their results in one message.
//! - the history is the number of calls.
//!
//! Floor: the same with 16,000, whose data are larger than the processor's caches, as those of 64,000 are.
//! With a floor of 1,000, whose data fit, linear code costs up to 4.4 times as much a call at 16,000. The case
//! fails if one of 64,000 costs more than 2.5 times as much as one of 16,000; growth with the square would make
//! the ratio 4. The two are measured in turns, since the load of the machine changes while they run.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tower_chat::{
    BoxError, Message, MessageId, Part, Role, RunId, ToolCall, ToolResult,
    import::rows::{self, AggregateCall, AggregateResult, AggregateRow, AggregateStep},
    replay::{DanglingCalls, FinishTimes, Freshness, Replay},
};
use tower_chat_wire::{anthropic, gemini, openai_chat, openai_responses};

use crate::{
    Effort,
    held::{nested_pieces, read_answer, read_stream, whole_answer},
    report::{Line, Samples, us_since},
    workload::TOOL,
};

/// The size of the floor, and the larger one. Quick measurements, of programs that are not optimised, do less.
fn sizes(effort: Effort) -> [usize; 2] {
    match effort {
        Effort::Full => [16_000, 64_000],
        Effort::Quick => [4_000, 16_000],
    }
}

/// How many times as much as at the floor a call may cost.
const GROWTH: f64 = 2.5;

/// Does it with so many calls; gives the time in microseconds.
type Work = fn(usize) -> Result<f64, BoxError>;

const WORK: [(&str, Work); 14] = [
    ("late_results", |calls| Ok(push_late(&asked_at_once(calls), calls, |call| call))),
    ("late_rounds", |calls| Ok(push_late(&asked_in_rounds(calls), calls, |_| 0))),
    ("split_open", |calls| Ok(split_open(calls))),
    ("provider_results", |calls| Ok(split_provider_results(calls))),
    ("imported_steps", |calls| import(calls, |call| call)),
    ("imported_equal_ids", |calls| import(calls, |_| 0)),
    ("imported_named", import_named),
    ("finish_times", |calls| Ok(complete_times(calls))),
    ("nested", |pieces| time(&nested_pieces(pieces), read_stream)),
    ("whole_answer", |calls| time(&whole_answer(calls), read_answer)),
    ("openai_chat", |calls| {
        Ok(render(calls, |messages| {
            drop(black_box(openai_chat::with_mistral_ids(openai_chat::render_messages(
                messages,
                openai_chat::Audience::Model,
            ))));
        }))
    }),
    ("openai_responses", |calls| {
        Ok(render(calls, |messages| drop(black_box(openai_responses::render_input(messages)))))
    }),
    ("anthropic", |calls| {
        Ok(render(calls, |messages| drop(black_box(anthropic::render_body(messages)))))
    }),
    ("gemini", |calls| {
        Ok(render(calls, |messages| {
            drop(black_box(gemini::render_messages(messages, gemini::Unsigned::AsRecorded)));
        }))
    }),
];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let sizes @ [smaller, larger] = sizes(effort);
    for (name, work) in WORK {
        let mut samples = sizes.map(|size| (size, Samples::default()));
        for _ in 0..effort.repetitions(20) {
            for (size, samples) in &mut samples {
                // As many calls in each sample, so that other work of the machine slows both alike.
                let times = larger / *size;
                let us: f64 = (0..times).map(|_| work(*size)).sum::<Result<_, _>>()?;
                samples.add(us / f64::from(u32::try_from(larger)?));
            }
        }
        let [(_, floor), _] = &samples;
        let floor = floor.median();
        for (size, samples) in &samples {
            let us = samples.median();
            Line::new("growth", name, "none", *size, us, floor).print()?;
            if us > floor * GROWTH {
                return Err(format!("{name}: {size} calls cost more each than {smaller}").into());
            }
        }
    }
    Ok(())
}

fn call(id: usize) -> ToolCall {
    ToolCall::new(format!("call_{id}"), TOOL, format!("[{id}]"))
}

fn result(id: usize, text: usize) -> ToolResult {
    ToolResult::new(format!("call_{id}"), format!("found {text}"))
}

/// Calls of one answer, of which none was answered.
fn asked_at_once(calls: usize) -> Vec<Message> {
    vec![
        Message::user("Look."),
        Message::tool_calls((0..calls).map(call)),
        Message::user("And then?"),
        Message::assistant("Then nothing."),
    ]
}

/// Answers with a call each, which have all the same id.
fn asked_in_rounds(calls: usize) -> Vec<Message> {
    let round = |_| [Message::user("Look."), Message::tool_calls([call(0)])];
    let mut messages: Vec<Message> = (0..calls).flat_map(round).collect();
    messages.extend([Message::user("And then?"), Message::assistant("Then nothing.")]);
    messages
}

/// Takes the results of calls, last call first, each in a message of its own.
fn push_late(asked: &[Message], calls: usize, id: fn(usize) -> usize) -> f64 {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    asked.iter().for_each(|message| replay.push(&Arc::new(message.clone())));
    let results = (0..calls).rev().map(|call| Message::tool_results([result(id(call), call)]));
    let results: Vec<_> = results.map(Arc::new).collect();
    let start = Instant::now();
    results.iter().for_each(|message| replay.push(message));
    black_box(replay.view());
    us_since(start)
}

fn split_open(calls: usize) -> f64 {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    asked_in_rounds(calls).into_iter().for_each(|message| replay.push(&Arc::new(message)));
    let start = Instant::now();
    black_box(replay.split_open());
    us_since(start)
}

/// Each result of another call parts one more result from the call of the provider.
fn split_provider_results(calls: usize) -> f64 {
    let mut parts = Vec::with_capacity(2 * calls);
    for id in 0..calls {
        let mut call = call(id);
        call.provider_executed = true;
        parts.push(Part::ToolCall(call));
        let before = id.checked_sub(1).unwrap_or(calls);
        parts.push(Part::ToolResult(result(before, id)));
    }
    let message = Arc::new(Message::new(Role::Assistant, parts));
    let mut replay = Replay::new(DanglingCalls::Drop);
    let start = Instant::now();
    replay.push(&message);
    black_box(replay.view());
    us_since(start)
}

fn import(calls: usize, id: fn(usize) -> usize) -> Result<f64, BoxError> {
    let mut row = AggregateRow::new(Role::Assistant).with_text("Done.");
    for call in 0..calls {
        let asked = AggregateCall::new(format!("call_{}", id(call)), TOOL, format!("[{call}]"));
        row = row.with_step(AggregateStep::new("", [asked], []));
    }
    for call in (0..calls).rev() {
        let text = format!("found {call}");
        row = row.with_result(AggregateResult::new(format!("call_{}", id(call)), text));
    }
    let start = Instant::now();
    black_box(rows::messages_of_rows([row])?);
    Ok(us_since(start))
}

fn time(input: &str, read: fn(&str) -> Result<(), BoxError>) -> Result<f64, BoxError> {
    let start = Instant::now();
    read(input)?;
    Ok(us_since(start))
}

/// Each result names the answered call of every step, and none of the calls that may be answered by
/// their positions.
fn import_named(steps: usize) -> Result<f64, BoxError> {
    let mut row = AggregateRow::new(Role::Assistant).with_text("All done.");
    for step in 0..steps {
        let mut answered = AggregateCall::new("call", TOOL, format!("[{step}]"));
        answered.result = Some(AggregateResult::new("call", format!("known {step}")));
        let open = AggregateCall::new("", TOOL, format!("[-{step}]"));
        row = row.with_step(AggregateStep::new("", [answered, open], []));
    }
    for step in 0..steps {
        row = row.with_result(AggregateResult::new("call", format!("late {step}")));
    }
    let start = Instant::now();
    black_box(rows::messages_of_rows([row])?);
    Ok(us_since(start))
}

fn complete_times(calls: usize) -> f64 {
    let mut asked = Message::tool_calls((0..calls).map(|_| call(0)));
    asked.id = Some(MessageId { run: RunId::from_bytes([1; 16]), index: 1 });
    let mut results = Message::tool_results((0..calls).map(|text| result(0, text)));
    results.added_at = Some(SystemTime::UNIX_EPOCH);
    let messages = [Message::user("Look."), asked, results].into();
    let mut times = FinishTimes::new();
    let policy = Freshness::within(Duration::from_secs(60));
    let start = Instant::now();
    times.complete(&messages);
    black_box(policy.apply(&messages, SystemTime::now(), None, &times));
    us_since(start)
}

/// Writes calls of one answer that have all the same id, and their results.
fn render(calls: usize, write: fn(&[Message])) -> f64 {
    let asked = Message::tool_calls((0..calls).map(|_| call(0)));
    let results = Message::tool_results((0..calls).map(|text| result(0, text)));
    let messages = [Message::user("Look."), asked, results];
    let start = Instant::now();
    write(&messages);
    us_since(start)
}
