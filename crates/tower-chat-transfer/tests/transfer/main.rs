//! Tests of copies between stores and files, and of deletions.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod conversations;
mod damaged;
mod deleting;
mod interrupted;
mod large;
mod numbers;
mod open_runs;
mod receipts;
mod refused;
mod refused_content;
mod round_trip;
mod stores;
mod summaries;
mod unreadable;
