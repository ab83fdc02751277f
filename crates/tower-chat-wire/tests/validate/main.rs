//! The transcript validator against what real providers accepted and refused.
//!
//! The recorded data lie in the folder that `TOWER_CHAT_DATA` names; without it the tests say that
//! they are skipped.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod accepted;
mod anything;
mod data;
mod mutation;
mod mutations;
mod neutral;
mod rejected;
mod rules;
mod sites;
mod transcripts;
