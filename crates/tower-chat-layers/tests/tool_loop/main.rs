//! The tool loop's behaviour, whole and streamed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, unreachable_pub, reason = "tests")]

mod approvals;
mod cancellation;
mod failures;
mod history;
mod persistence;
mod queue;
mod readiness;
mod rounds;
mod script;
mod streaming;
mod terminate;
mod tool_sets;
