//! Tests the endpoint over HTTP, with single requests, with OpenAI's own packages, and with a
//! browser.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod branches;
mod browser;
mod endpoint;
mod examples;
mod packages;
mod runs;
mod support;
