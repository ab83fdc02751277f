//! `request`: inserts stored messages before a request, and clones the request.
//!
//! Floor: the same with 10 stored messages. Bound: at most twice the floor.

use std::{hint::black_box, time::Instant};

use tower_chat::{BoxError, ChatRequest, message::Messages};

use crate::{
    Effort,
    report::{Line, Samples, us_since},
    workload,
};

const FLOOR: usize = 10;
const HISTORIES: [usize; 2] = [FLOOR, 10_000];
const TIMES: u32 = 1000;

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let histories: Vec<(usize, Messages)> = HISTORIES
        .map(|count| (count, workload::stored_messages(count).into_iter().collect()))
        .into();
    let mut samples = vec![Samples::default(); histories.len()];
    for _ in 0..effort.repetitions(200) {
        for ((_, history), samples) in histories.iter().zip(&mut samples) {
            samples.add(prepend_and_clone(history));
        }
    }
    let floor = samples.first().map_or(f64::NAN, Samples::median);
    for (count, samples) in HISTORIES.into_iter().zip(&samples) {
        Line::new("request", "none", "none", count, samples.median(), floor).print()?;
    }
    Ok(())
}

fn prepend_and_clone(history: &Messages) -> f64 {
    let requests: Vec<ChatRequest> = (0..TIMES).map(|_| workload::input()).collect();
    let start = Instant::now();
    for mut request in requests {
        request.prepend(black_box(history));
        black_box(request.clone());
        black_box(request);
    }
    us_since(start) / f64::from(TIMES)
}
