//! A conversation that goes on in another process sends the provider exactly what it would have
//! sent in the first.
//!
//! Recorded answers are played by a server on this machine. One process has two turns, each with
//! its tools; another has the first turn, and a really new one the second. What the second turn
//! sends is compared byte for byte, in every mode. And a conversation goes to another provider and
//! back. [`providers`] has one row for each model client; where nothing fit to go on with is
//! recorded, [`scripted`] has it.

mod conversation;
mod processes;
mod providers;
mod scripted;
mod server;
mod switching;
