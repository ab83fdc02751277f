//! A streamed answer of Chat Completions: the data of its events are checked, parsed and
//! accumulated. The resulting message is encoded once.
//!
//! - the field `mode` is the name of the field whose value arrives in pieces: text (`content`,
//!   `reasoning_content`), fragments of one block (`reasoning_details`), or an unknown list
//!   (`odd`).
//! - the field `history` is the number of pieces.
//!
//! Floor: the same with 1,000 pieces. The case fails if a piece takes more than 3 times as long
//! with 16,000 pieces as with 1,000 pieces. With quadratic growth, the ratio would be 16.
//! [`crate::held`] measures the memory.

use std::{hint::black_box, time::Instant};

use serde_json::{Value, json};
use tower_chat::BoxError;
use tower_chat_wire::stream::{Accumulator, Limits, Object, check_depth};

use crate::{
    Effort,
    report::{Line, Samples, us_since},
};

const FLOOR: usize = 1000;
const PIECES: [usize; 3] = [FLOOR, 4000, 16_000];
/// The maximum time for each piece, in proportion to the floor.
const GROWTH: f64 = 3.0;

pub(crate) type Piece = fn(&str) -> Value;

pub(crate) const FIELDS: [(&str, Piece); 4] = [
    ("content", |text| json!({"content": text})),
    ("reasoning_content", |text| json!({"reasoning_content": text})),
    (
        "reasoning_details",
        |text| json!({"reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}),
    ),
    ("odd", |text| json!({"odd": [text]})),
];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    for (field, piece) in FIELDS {
        let mut floor = f64::NAN;
        for pieces in PIECES {
            let answer = answer(pieces, "word ", piece);
            let mut samples = Samples::default();
            for _ in 0..effort.repetitions(20) {
                let start = Instant::now();
                black_box(accumulated(answer.iter().map(String::as_str))?);
                samples.add(us_since(start) / f64::from(u32::try_from(pieces)?));
            }
            let us = samples.median();
            if pieces == FLOOR {
                floor = us;
            }
            Line::new("streamed_answer", field, "none", pieces, us, floor).print()?;
            if us > floor * GROWTH {
                return Err(format!(
                    "{field}: each of {pieces} pieces takes too long, compared with {FLOOR} pieces"
                )
                .into());
            }
        }
    }
    Ok(())
}

pub(crate) fn answer(pieces: usize, text: &str, piece: Piece) -> Vec<String> {
    (0..pieces).map(|index| piece(&format!("{text}{index}")).to_string()).collect()
}

pub(crate) fn accumulated<'a>(
    answer: impl IntoIterator<Item = &'a str>,
) -> Result<Object, BoxError> {
    let limits = Limits::default();
    let mut message = Accumulator::default();
    for data in answer {
        check_depth(data, &limits)?;
        message.push(serde_json::from_str(data)?);
    }
    Ok(message.into_object())
}
