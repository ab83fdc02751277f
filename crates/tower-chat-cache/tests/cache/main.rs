//! What a cache does beyond the promises of a store: it reads less.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod bounds;
mod common;
mod differential;
mod failures;
mod revalidation;
mod runs;
mod single_flight;
mod what_is_kept;
