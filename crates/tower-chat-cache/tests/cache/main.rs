//! Tests of the cache: the rules of stores, and fewer reads.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod bounds;
mod capabilities;
mod common;
mod differential;
mod failures;
mod revalidation;
mod runs;
mod single_flight;
mod store_contract;
mod what_is_kept;
