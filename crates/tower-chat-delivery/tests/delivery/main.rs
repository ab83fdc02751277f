//! Tests of detached runs and of update logs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod batches;
mod faulty_log;
mod histories;
mod kills;
mod limits;
mod lost_leases;
mod ranges;
mod readers;
mod repetitions;
mod sqlite_log;
mod stops;
mod support;

mod memory_log {
    use tower_chat_delivery::MemoryUpdateLog;

    tower_chat_delivery::update_log_contract!(options => MemoryUpdateLog::with_options(options));
}
