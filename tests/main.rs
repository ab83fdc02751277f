//! Tests that use several crates: generated conversations against models of the contract, faults,
//! killed processes, and recorded traffic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic is a failing test"
)]

mod continuation;
mod contract_model;
mod faults;
mod long_run;
mod replay_properties;
mod search;
mod wires;
