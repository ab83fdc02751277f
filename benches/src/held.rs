//! Measures how much memory the parser of an external input needs for each byte of the input, and
//! how much memory the first request of a process needs in a long conversation (the module
//! `cold_range`).
//!
//! - `pairing`, `overlap`: a request to the endpoint with calls and their results in reverse order,
//!   or with equal messages that are sent again, as in the module `pairing`. The measured memory
//!   includes the stored messages.
//! - `nested`: a stream with an unknown field of 20 levels in every piece.
//! - `too_deep`: one field that is nested 100 levels deep for each item. The parser rejects it.
//! - `whole_answer`: the body of a complete answer with calls.
//! - `refusal`: the body of an error.
//! - the other cases are names of fields: a stream as in the module `streamed_answer`.
//!
//! `cargo run --profile measure -p tower-chat-benches --bin held` prints one JSON object on each
//! line: the peak of the allocated bytes while an input is read, without the input itself, and this
//! peak divided by the length of the input.
//!
//! Each case reads an input with 1,000 items and an input with 16,000 items. The program fails if
//! the memory for each byte of the large input exceeds the bound of the case, or 1.5 times the
//! memory for each byte of the small input. The load of the machine does not change these figures.

use std::hint::black_box;

use serde_json::{Value, json};
use tower_chat::BoxError;
use tower_chat_wire::{
    body::BodyWire,
    stream::{BodyReader, LimitExceeded, Limits, check_depth},
};

use crate::{
    cold_range,
    pairing::{overlap_body, pairing_body, send},
    report::rounded,
    streamed_answer::{FIELDS, accumulated, answer},
};

const SIZES: [usize; 2] = [1000, 16_000];
/// The maximum ratio of the memory for each byte between the large and the small input.
const GROWTH: f64 = 1.5;
/// The levels of a nested piece. The parser allows 120 levels, which take much time in a debug
/// build.
const LEVELS: usize = 20;
/// The number of bytes in each chunk from the network.
const CHUNK: usize = 16 * 1024;

/// A counter of allocated bytes.
pub trait Allocated {
    /// Returns the number of currently allocated bytes.
    fn now(&self) -> usize;
    /// Returns the maximum number of allocated bytes since the last [`reset`](Self::reset).
    fn peak(&self) -> usize;
    /// Resets the maximum.
    fn reset(&self);
}

/// An input and the function that reads it.
struct Case {
    name: String,
    /// Creates the input with this number of items.
    input: Box<dyn Fn(usize) -> String>,
    read: fn(&str) -> Result<(), BoxError>,
    /// The maximum memory for each byte of the input.
    bound: f64,
}

/// Measures every case.
///
/// # Errors
///
/// Returns an error if an input cannot be read, or if a case needs more memory than its bound.
pub fn measure(allocated: &impl Allocated) -> Result<(), BoxError> {
    for Case { name, input, read, bound } in cases() {
        // The first read allocates the values that live as long as the process.
        read(&input(10))?;
        let mut floor = f64::NAN;
        for items in SIZES {
            let input = input(items);
            let before = allocated.now();
            allocated.reset();
            read(&input)?;
            let peak = allocated.peak().saturating_sub(before);
            let for_each = f64::from(u32::try_from(peak)?) / f64::from(u32::try_from(input.len())?);
            if items == SIZES[0] {
                floor = for_each;
            }
            let line = json!({
                "case": "held", "mode": name, "items": items, "input_bytes": input.len(),
                "peak_bytes": peak, "bytes_per_byte": rounded(for_each), "bound": bound,
                "ratio": rounded(for_each / floor),
            });
            println!("{line}");
            if for_each > bound || for_each > floor * GROWTH {
                let what = format!(
                    "{name}: parsing {items} items needs {for_each} bytes of memory for each byte of input"
                );
                return Err(what.into());
            }
        }
    }
    cold_range::measure_memory(allocated)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("pairing", pairing_body, |body| send(body, 1), 32.0),
        case("overlap", overlap_body, |body| send(body, 2), 64.0),
        case("nested", nested_pieces, read_stream, 2.0),
        case("too_deep", too_deep, refuse_depth, 4.0),
        case("whole_answer", whole_answer, read_answer, 16.0),
        case("refusal", refusal, read_refusal, 64.0),
    ];
    for (field, piece) in FIELDS {
        let input = move |items| answer(items, "word ", piece).join("\n");
        cases.push(case(field, input, read_stream, 4.0));
    }
    cases
}

fn case(
    name: &str,
    input: impl Fn(usize) -> String + 'static,
    read: fn(&str) -> Result<(), BoxError>,
    bound: f64,
) -> Case {
    Case { name: name.to_owned(), input: Box::new(input), read, bound }
}

pub(crate) fn read_stream(stream: &str) -> Result<(), BoxError> {
    drop(black_box(accumulated(stream.lines())?));
    Ok(())
}

/// Returns a stream in which each piece has an unknown nested field.
pub(crate) fn nested_pieces(items: usize) -> String {
    let piece = |text: &str| (0..LEVELS).fold(json!(text), |inner, _| json!({"inner": inner}));
    answer(items, "deep ", piece).join("\n")
}

/// Returns a field that is nested 100 levels deep for each item.
fn too_deep(levels: usize) -> String {
    let levels = levels * 100;
    format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
}

fn refuse_depth(stream: &str) -> Result<(), BoxError> {
    match accumulated(stream.lines()) {
        Err(error) if error.is::<LimitExceeded>() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err("the input was nested too deeply and was accepted".into()),
    }
}

/// Returns an answer with this number of calls.
pub(crate) fn whole_answer(calls: usize) -> String {
    let call = |index| {
        let function = json!({"name": "look", "arguments": json!({"order": index}).to_string()});
        json!({"id": format!("call_{index}"), "type": "function", "function": function})
    };
    let calls: Vec<Value> = (0..calls).map(call).collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
        .to_string()
}

pub(crate) fn read_answer(body: &str) -> Result<(), BoxError> {
    let limits = Limits::default();
    let mut reader = BodyReader::answer(limits);
    for chunk in body.as_bytes().chunks(CHUNK) {
        reader.push(chunk)?;
    }
    let text = reader.into_text();
    check_depth(&text, &limits)?;
    drop(black_box(BodyWire::OpenAiChat.parse_answer(&text)?));
    Ok(())
}

/// Returns an error body with this number of details.
fn refusal(details: usize) -> String {
    let details: Vec<Value> = (0..details).map(|index| json!({"detail": index})).collect();
    json!({"error": {"message": "Too much.", "details": details}}).to_string()
}

fn read_refusal(body: &str) -> Result<(), BoxError> {
    let mut reader = BodyReader::refusal(Limits::default());
    for chunk in body.as_bytes().chunks(CHUNK) {
        if reader.push(chunk).is_err() {
            break;
        }
    }
    drop(black_box(BodyWire::OpenAiChat.parse_error(400, &reader.into_text())));
    Ok(())
}
