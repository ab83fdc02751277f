//! What update logs have in common. Authors of an [`UpdateLog`](crate::UpdateLog) need it.

pub use crate::log::{
    record::RunRecord,
    server::{FoundRun, RunWrite, ServerLog},
    wakeups::{Notifications, Wakeups},
};
