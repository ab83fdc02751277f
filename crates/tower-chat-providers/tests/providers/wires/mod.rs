//! Each provider's own wire.

mod bounds;
mod compatible;
mod cut;
mod direct;
mod errors;
mod expected;
mod foreign;
mod ollama;
mod plain;
mod recorded;
mod requests;
mod stack;
pub(crate) mod wire;
