//! Recorded conversations are played, and come out of the store as they went in.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails says where")]

mod expected;
mod play;
mod refusals;
mod resume;
mod support;
