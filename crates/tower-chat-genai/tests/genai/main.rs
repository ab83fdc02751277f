//! The leaf against a loopback server that answers with what real services answered.
//!
//! The recorded traffic lies in the folder that `TOWER_CHAT_DATA` names; without it the tests that
//! need it say that they are skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod cassettes;
mod compatible;
mod cut;
mod direct;
mod errors;
mod foreign;
mod leftovers;
mod limits;
mod live;
mod ollama;
mod plain;
mod recorded;
mod requests;
mod said;
mod server;
mod stack;
mod wire;
