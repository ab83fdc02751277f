//! Tests of the caches: the rules of stores, fewer reads, and gathered writes.
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
