//! Tests that recorded conversations are played into a store, and that their exports equal the
//! recordings.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails says where")]

mod expected;
mod play;
mod refusals;
mod resume;
mod support;
