//! What a player has done so far.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use super::Divergence;

/// What a player has done so far, in all its conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Runs that were begun.
    pub runs: u64,
    /// Requests that reached the leaf.
    pub service_calls: u64,
    /// Tools that were run.
    pub tool_executions: u64,
    /// Differences that were found.
    pub divergences: u64,
}

/// The counters behind a [`Tally`], and the divergences nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct Counters {
    runs: AtomicU64,
    service_calls: AtomicU64,
    tool_executions: AtomicU64,
    divergences: AtomicU64,
    found: Mutex<Vec<Divergence>>,
}

impl Counters {
    pub(super) fn tally(&self) -> Tally {
        Tally {
            runs: self.runs.load(Ordering::Relaxed),
            service_calls: self.service_calls.load(Ordering::Relaxed),
            tool_executions: self.tool_executions.load(Ordering::Relaxed),
            divergences: self.divergences.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_service_call(&self) {
        self.service_calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_tool_execution(&self) {
        self.tool_executions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn diverged(&self, divergence: Divergence) {
        self.divergences.fetch_add(1, Ordering::Relaxed);
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push(divergence);
    }

    pub(super) fn take_divergences(&self) -> Vec<Divergence> {
        std::mem::take(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
