//! What the layers promise, whole and streamed: the table of `docs/contract.md`, and the scenarios of
//! `docs/scenarios.md`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod activity;
mod adapt;
mod case;
mod common;
mod journal;
mod metrics;
mod persistence;
mod record;
mod scenarios;
mod telemetry;
mod tool_loop;
