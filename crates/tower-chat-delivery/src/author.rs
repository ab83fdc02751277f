//! The types with which an [`UpdateLog`](crate::UpdateLog) for another database is implemented.

pub use crate::log::{
    record::RunRecord,
    server::{FoundRun, RunWrite, ServerLog},
    wakeups::{Notifications, Wakeups},
};
