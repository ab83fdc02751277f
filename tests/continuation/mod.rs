//! Tests that a conversation sends the same requests to its provider whether it continues in the
//! same process or in another one.
//!
//! A local server replays recorded answers. Each conversation has two turns (a question of the user
//! and everything up to its answer), and is executed twice: once with both turns in one process,
//! and once with the second turn in a new process. The requests of the second turns are compared
//! byte for byte, in every mode. A further test switches a conversation to another provider and
//! back.
//!
//! [`providers`] lists the model clients. [`scripted`] has answers for providers without suitable
//! recordings.

mod conversation;
mod processes;
mod providers;
mod scripted;
mod server;
mod switching;
