//! Tests of the endpoint over HTTP: its requests and responses, OpenAI's own packages, and a browser.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod browser;
mod endpoint;
mod examples;
mod packages;
mod runs;
mod support;
