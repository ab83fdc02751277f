//! Tests of the endpoint over HTTP: its requests and responses, and OpenAI's own packages.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod endpoint;
mod examples;
mod packages;
mod runs;
mod support;
