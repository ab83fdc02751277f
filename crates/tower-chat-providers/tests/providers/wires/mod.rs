//! Tests of providers that have their own wire format.

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
