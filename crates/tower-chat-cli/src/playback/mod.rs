//! Recorded conversations, played through a real stack.
//!
//! A [`Recording`] is a conversation that took place somewhere: one line of a JSON-lines file,
//! `{"id": …, "messages": [OpenAI chat format]}`. A [`Player`] drives it through tool loop and
//! persistence layers into a store. Its assistant messages are the answers of a scripted model
//! client, its tool results are what scripted tools return, and a run is handed nothing but its own
//! input: everything earlier must come out of the store. The model client compares each request
//! with the recording; a difference is a [`Divergence`].
//!
//! # How a recording becomes runs
//!
//! - Messages before the first system, developer or user message are appended as they stand.
//! - A run's input is what lies before the next assistant message and is not the result of a call
//!   of this run. Input after the last assistant message is not played.
//! - The tool messages right after an assistant message that answer its calls are the results of
//!   those calls; they are paired by id, by position where an id is missing, and taken in the order
//!   of the calls. Where every call has one and an assistant message follows, the run goes on.
//!   Where something else follows, or nothing, the batch's last tool terminates the run, and the
//!   results are the beginning of the next run's input, if there is one.
//! - A call without a recorded result is declared only: the loop returns its whole batch.

mod alignment;
mod comparison;
mod counters;
mod divergence;
mod expected_messages;
mod model;
mod pairing;
mod plan;
mod player;
mod recording;
mod script;
#[cfg(test)]
mod tests;
mod tools;
mod verification;

pub(crate) use self::{
    counters::PlayCounters,
    divergence::{Difference, Divergence},
    player::{PlayError, Player},
    recording::{Recording, RecordingError},
};

/// The scope under which conversations are played.
pub(crate) const SCOPE: &str = "play";
