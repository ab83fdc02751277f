//! Chat Completions.

mod cut;
mod errors;
mod expected;
mod pieces;
mod recorded;
mod requests;
mod stack;
