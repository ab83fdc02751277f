//! The numbers of the sources that tools find.

use std::{
    fmt,
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Hands out the numbers of a run's sources, each once.
pub(crate) struct SourceNumbers {
    /// The number after the highest that a source of the conversation has; asked once a run.
    first: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The next number; `None` until a tool has asked for one.
    next: Mutex<Option<u64>>,
}

impl SourceNumbers {
    /// Numbers from the one that a function finds, which is called for the first of them.
    pub(crate) fn from(first: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { first: Box::new(first), next: Mutex::default() }
    }

    /// The next `count` numbers.
    pub(crate) fn take(&self, count: u64) -> Range<u64> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = next.unwrap_or_else(&self.first);
        let end = start.saturating_add(count);
        *next = Some(end);
        start..end
    }
}

impl fmt::Debug for SourceNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceNumbers").field("next", &self.next).finish_non_exhaustive()
    }
}
