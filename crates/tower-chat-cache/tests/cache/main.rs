//! Tests that the cache follows the rules of stores, and that it reads less from the inner store.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod bounds;
mod capabilities;
mod common;
mod differential;
mod failures;
mod ranges;
mod revalidation;
mod runs;
mod single_flight;
mod store_contract;
mod summaries;
mod writes;
