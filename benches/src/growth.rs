//! Measures whether replay, import and wires (JSON formats of providers) take linear time in the
//! number of tool calls of a conversation.
//!
//! The field `mode` of a printed line names the operation:
//!
//! - `late_results`: one answer has all calls, and the replay has already marked them as
//!   interrupted. Then the results arrive, each in its own message.
//! - `late_rounds`: the same with one answer for each call. All calls have the same id.
//! - `split_open`: the history of `late_rounds`, without the results, is replayed. Then the replay
//!   splits off the messages whose calls can still receive a result.
//! - `provider_results`: a message contains calls that the provider has executed. Between the
//!   results of these calls are results of other calls.
//! - `imported_steps`: a row with one call in each step, and a separate list of results.
//! - `imported_equal_ids`: the same with equal ids of all calls.
//! - `imported_named`: each step has a call that already has a result, and a call without an id.
//!   Each result in the list belongs to a call without an id, but names the id of the other calls.
//! - `nested`: a stream with a nested field in every piece.
//! - `whole_answer`: the body of an answer with many calls.
//! - `finish_times`: one answer has calls with equal ids. The replay reads the end times of the
//!   calls from their results, and omits stale results.
//! - the name of a wire: a request is encoded. It contains one answer, whose calls have equal ids,
//!   and one message with their results.
//!
//! The field `history` is the number of calls.
//!
//! Each operation is measured with 16,000 calls (the floor) and with 64,000 calls. The case fails
//! if a call takes more than 2.5 times as long with 64,000 calls as with 16,000 calls. With
//! quadratic growth, the ratio would be 4. A floor with 1,000 calls would be too low, because their
//! data fit into the caches of the processor: even linear code takes up to 4.4 times as long for
//! each of 16,000 calls as for each of 1,000 calls.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tower_chat::{
    BoxError, Message, Part, Role, ToolCall, ToolResult,
    import::rows::{self, AggregateCall, AggregateResult, AggregateRow, AggregateStep},
    message::MessageId,
    replay::{DanglingCalls, FinishTimes, Freshness, Replay},
    run::RunId,
};
use tower_chat_wire::{anthropic, gemini, openai_chat, openai_responses};

use crate::{
    Effort,
    held::{nested_pieces, read_answer, read_stream, whole_answer},
    report::{Line, Samples, us_since},
    workload::TOOL,
};

/// Returns the number of calls of the floor, and the larger number of calls. A quick measurement
/// uses smaller numbers, because the program may be unoptimised.
fn sizes(effort: Effort) -> [usize; 2] {
    match effort {
        Effort::Full => [16_000, 64_000],
        Effort::Quick => [4_000, 16_000],
    }
}

/// The maximum time for each call, in proportion to the floor.
const GROWTH: f64 = 2.5;

/// Executes an operation with this number of calls, and returns the time in microseconds.
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
                // The floor is repeated until both samples have the same total number of calls. The
                // two sizes alternate, because the load of the machine changes.
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
                return Err(format!(
                    "{name}: each of {size} calls takes too long, compared with {smaller} calls"
                )
                .into());
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

/// Returns messages with one answer that has all calls, without results.
fn asked_at_once(calls: usize) -> Vec<Message> {
    vec![
        Message::user("Look."),
        Message::tool_calls((0..calls).map(call)),
        Message::user("And then?"),
        Message::assistant("Then nothing."),
    ]
}

/// Returns answers with one call each. All calls have the same id.
fn asked_in_rounds(calls: usize) -> Vec<Message> {
    let round = |_| [Message::user("Look."), Message::tool_calls([call(0)])];
    let mut messages: Vec<Message> = (0..calls).flat_map(round).collect();
    messages.extend([Message::user("And then?"), Message::assistant("Then nothing.")]);
    messages
}

/// Replays the results of the calls, beginning with the last call, each result in its own message.
/// Returns the time in microseconds.
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

/// Measures a message in which results of other calls separate the results of the provider's calls.
/// Returns the time in microseconds.
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

/// Imports a row for `imported_named`. Returns the time in microseconds.
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

/// Encodes calls of one answer with equal ids, and their results. Returns the time in microseconds.
fn render(calls: usize, write: fn(&[Message])) -> f64 {
    let asked = Message::tool_calls((0..calls).map(|_| call(0)));
    let results = Message::tool_results((0..calls).map(|text| result(0, text)));
    let messages = [Message::user("Look."), asked, results];
    let start = Instant::now();
    write(&messages);
    us_since(start)
}
