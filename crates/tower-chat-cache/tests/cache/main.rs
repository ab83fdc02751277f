//! What caches promise: everything that a store does, and to read less, or to write together.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod bounds;
mod common;
mod differential;
mod failures;
mod revalidation;
mod runs;
mod single_flight;
mod store_contract;
mod what_is_kept;
mod write_behind;
