//! A slot in a store's queue.

use std::fmt;

/// A slot in a store's bounded queue, from [`HistoryStore::reserve`](super::HistoryStore::reserve).
///
/// Dropping a slot releases it. A submission owns its slot until its writes are durable or have
/// failed.
pub struct Slot {
    permit: Option<Box<dyn Send>>,
    /// Whether the store may execute the writes on the thread of the caller.
    may_block: bool,
}

impl Slot {
    /// Creates a slot for a store whose queue has no bound.
    pub fn unbounded() -> Self {
        Self { permit: None, may_block: true }
    }

    /// Creates a slot that is released when `guard` is dropped, such as a semaphore permit.
    pub fn guarded(guard: impl Send + 'static) -> Self {
        Self { permit: Some(Box::new(guard)), may_block: true }
    }

    /// Marks the slot as one whose caller must not be blocked, for example because the caller is a
    /// `Drop` implementation. The store then executes the writes in its own task or thread, and
    /// never on the thread of the caller.
    #[must_use]
    pub fn without_blocking(mut self) -> Self {
        self.may_block = false;
        self
    }

    /// Returns whether the store may execute the writes on the caller's thread.
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
