//! The leaves against a loopback server that answers with what real services answered.
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
mod chat;
mod coverage;
#[path = "../../../tower-chat-genai/tests/genai/leftovers.rs"]
mod leftovers;
mod limits;
mod live;
mod responses;
mod server;
