//! Plays recorded conversations through a real stack.
//!
//! A [`Recording`] is one line of a JSON-lines file, `{"id": …, "messages": [OpenAI chat format]}`.
//! A [`Player`] plays it through the tool loop and the persistence layers into a store. A scripted
//! model client returns the recorded assistant messages, and scripted tools return the recorded
//! tool results.
//!
//! The request of a run contains only the input of the run: all earlier messages must come from the
//! store. The model client compares each request with the recording. Each difference is a
//! [`Divergence`].
//!
//! # The runs of a recording
//!
//! - Messages before the first system, developer or user message are appended unchanged.
//! - The input of a run consists of the messages before the next assistant message. Input after the
//!   last assistant message is not played.
//! - The tool messages directly after an assistant message are the results of its calls. They are
//!   paired with the calls by id, or by position if an id is missing, and returned in the order of
//!   the calls.
//! - If every call has a result and an assistant message follows, the run continues. Otherwise the
//!   last tool ends the run, and the results begin the input of the next run, if there is one.
//! - A tool whose call has no recorded result cannot be executed by the loop. The loop then returns
//!   all calls of the answer to the caller.

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

pub(crate) const SCOPE: &str = "play";
