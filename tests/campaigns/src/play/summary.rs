//! The last line of the output.

use std::time::Duration;

use serde::Serialize;

use crate::playback::PlayCounters;

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// The number of conversations that were played to their end, with or without divergences.
    conversations: usize,
    runs: u64,
    service_calls: u64,
    tool_executions: u64,
    divergences: u64,
    wall_ms: u64,
}

impl Summary {
    pub(super) fn new(conversations: usize, counters: PlayCounters, wall: Duration) -> Self {
        Self {
            conversations,
            runs: counters.runs,
            service_calls: counters.service_calls,
            tool_executions: counters.tool_executions,
            divergences: counters.divergences,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(super) fn to_json(&self) -> String {
        #[allow(clippy::expect_used, reason = "a struct of numbers has a JSON form")]
        serde_json::to_string(self).expect("a struct of numbers has a JSON form")
    }
}
