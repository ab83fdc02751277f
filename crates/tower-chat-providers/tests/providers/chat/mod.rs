//! Tests of Chat Completions.

mod cut;
mod errors;
mod expected;
mod limits;
mod live;
mod pieces;
mod recorded;
mod requests;
mod stack;
