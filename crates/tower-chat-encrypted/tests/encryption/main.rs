//! Tests of the data that the encrypted store returns with and without keys.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod around;
mod attacks;
mod capabilities;
mod common;
mod directory;
mod former;
mod keys;
mod maintenance;
mod mixed_states;
mod plaintext;
mod positions;
mod ranges;
mod store_contract;
mod summaries;
mod tampering;
mod update_log;
