//! Tests that recorded conversations are played, and are exported as they were recorded.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails says where")]

mod expected;
mod play;
mod refusals;
mod resume;
mod support;
