//! The types for implementing an [`UpdateLog`](crate::UpdateLog) on another database.

pub use crate::log::{
    record::RunRecord,
    server::{FoundRun, RunWrite, ServerLog},
    wakeups::{Notifications, Wakeups},
};
