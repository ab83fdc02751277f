//! Conversations that providers accepted, through the stores and over to the other wires.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod codec;
mod data;
mod normalised;
mod switching;
mod through_the_store;
