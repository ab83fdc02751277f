//! A slot in a store's queue.

use std::fmt;

/// A slot in a store's bounded queue, from [`HistoryStore::reserve`](super::HistoryStore::reserve).
///
/// Dropping it releases the slot. It travels with the writes it was reserved for, so the slot
/// is taken until they are durable.
pub struct Slot {
    permit: Option<Box<dyn Send>>,
    may_block: bool,
}

impl Slot {
    /// A slot in a store without a bound.
    pub fn unbounded() -> Self {
        Self { permit: None, may_block: true }
    }

    /// A slot that is released when `guard` is dropped, such as a semaphore permit.
    pub fn guarded(guard: impl Send + 'static) -> Self {
        Self { permit: Some(Box::new(guard)), may_block: true }
    }

    /// Says that the caller must not be kept waiting, as in `Drop`: the store hands the writes to
    /// its own task or thread even where the caller's would do.
    #[must_use]
    pub fn without_blocking(mut self) -> Self {
        self.may_block = false;
        self
    }

    /// Whether the store may do the writes on the caller's thread.
    pub fn may_block(&self) -> bool {
        self.may_block
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("bounded", &self.permit.is_some())
            .field("may_block", &self.may_block)
            .finish()
    }
}
