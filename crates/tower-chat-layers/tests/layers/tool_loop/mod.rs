//! Tests of the tool loop, with whole and streamed answers.

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
