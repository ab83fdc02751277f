//! Tests of the layers, with whole and streamed answers. They check the guarantees in
//! `docs/contract.md` and other behaviour.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod activity;
mod adapt;
mod capabilities;
mod case;
mod common;
mod inner_services;
mod journal;
mod metrics;
mod persistence;
mod record;
mod scenarios;
mod telemetry;
mod tool_loop;
