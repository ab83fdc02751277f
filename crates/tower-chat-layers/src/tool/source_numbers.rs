//! The numbers of the sources that tools find, for example of the hits of a search.
//! [`Citations`](crate::replay::Citations) defines where results contain the numbers.

use std::{
    fmt,
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Allocates numbers for the sources that the tools of a run find.
pub(crate) struct SourceNumbers {
    /// Returns the number after the highest source number of the conversation. Called at most once.
    first: Box<dyn Fn() -> u64 + Send + Sync>,
    /// `None` until a tool has requested numbers.
    next: Mutex<Option<u64>>,
}

impl SourceNumbers {
    pub(crate) fn starting_at(first: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { first: Box::new(first), next: Mutex::default() }
    }

    pub(crate) fn allocate(&self, count: u64) -> Range<u64> {
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
