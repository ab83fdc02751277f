//! Tests that a conversation which continues in another process sends the provider exactly the same
//! requests as in the first process.
//!
//! A server on this machine replays recorded answers. In one process, a conversation has two turns.
//! In another test, one process runs the first turn, and a newly started process runs the second
//! turn. The requests of the second turns are compared byte for byte, in every mode. A further test
//! switches a conversation to another provider and back. [`providers`] has a row for each model
//! client. If no suitable conversation was recorded for a provider, [`scripted`] contains one.

mod conversation;
mod processes;
mod providers;
mod scripted;
mod server;
mod switching;
