//! The numbers of the sources that tools find.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Hands out the numbers of a run's sources, each once.
#[derive(Debug, Default)]
pub(crate) struct SourceNumbers {
    /// The next number; `None` until a tool has asked for one.
    next: Mutex<Option<u64>>,
}

impl SourceNumbers {
    /// The next `count` numbers; the conversation is asked for the first of them once a run.
    pub(crate) fn take(&self, count: u64, first: impl FnOnce() -> u64) -> Range<u64> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = next.unwrap_or_else(first);
        let end = start.saturating_add(count);
        *next = Some(end);
        start..end
    }
}
