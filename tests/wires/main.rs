//! Conversations that providers accepted, through the stores and over to the other wires.
//!
//! The recorded data lie in the folder that `TOWER_CHAT_DATA` names; without it the tests say that
//! they are skipped.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod codec;
mod data;
mod normalised;
mod switching;
mod through_the_store;
