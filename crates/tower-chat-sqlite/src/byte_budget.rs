//! The byte budget: the bound on the bytes of unfinished submissions. A submission is the writes of
//! one call of `append`.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Counts the bytes of unfinished submissions. `SqliteStore::reserve` waits while the count is at
/// the limit or above it.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    /// The number of bytes at which callers begin to wait.
    limit: usize,
    /// The number of bytes of all unfinished submissions.
    used: AtomicUsize,
    /// Wakes all waiting callers when the count falls below the limit.
    freed: Notify,
}

impl ByteBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), freed: Notify::new() }
    }

    /// Adds the bytes of a submission to the count until the guard is dropped. The count may exceed
    /// the limit, because a submission with a reserved entry of the queue does not wait.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> BudgetGuard {
        self.used.fetch_add(bytes, Ordering::SeqCst);
        BudgetGuard { budget: self.clone(), bytes }
    }

    /// Waits until the counted bytes are below the limit.
    pub(crate) async fn wait(&self) {
        while !self.is_free() {
            let mut freed = std::pin::pin!(self.freed.notified());
            // The waiter is registered before the check, so that it misses no notification after
            // the check.
            freed.as_mut().enable();
            if self.is_free() {
                return;
            }
            freed.await;
        }
    }

    /// Returns whether the counted bytes are below the limit.
    pub(crate) fn is_free(&self) -> bool {
        self.used.load(Ordering::SeqCst) < self.limit
    }
}

/// The bytes of one submission. Dropping the guard subtracts these bytes from the count.
#[derive(Debug)]
pub(crate) struct BudgetGuard {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl BudgetGuard {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        let before = self.budget.used.fetch_sub(self.bytes, Ordering::SeqCst);
        if before >= self.budget.limit && before - self.bytes < self.budget.limit {
            self.budget.freed.notify_waiters();
        }
    }
}
