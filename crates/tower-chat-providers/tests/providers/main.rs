//! Tests of the clients of every provider, against an HTTP server that replays recorded answers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod adapt;
mod answers;
mod auth;
mod basics;
mod cassettes;
mod chat;
mod client;
mod coverage;
mod examples;
mod native_texts;
mod rate_limit;
mod refused_content;
mod responses;
mod retry;
mod rules;
mod server;
mod structured;
mod transport;
mod wires;
