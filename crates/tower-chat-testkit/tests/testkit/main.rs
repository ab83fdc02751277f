//! Tests the test doubles, and tests that the contract of stores detects faulty stores.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod data;
mod faulty_store;
mod memory_store;
mod partial_store;
mod recorded_metrics;
mod recordings;
mod scripted_model;
mod store_contract;
mod validate;
