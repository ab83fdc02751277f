//! What an encrypted store shows to whom.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod around;
mod common;
mod keys;
mod places;
mod plaintext;
mod tampering;
