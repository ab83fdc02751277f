//! The transcript validator against what real providers accepted and refused.

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
