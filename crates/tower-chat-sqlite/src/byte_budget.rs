//! The byte budget: the bound on the bytes of unfinished submissions.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Counts the bytes of unfinished submissions. While they reach the limit, callers wait before they
/// reserve a slot.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    limit: usize,
    taken: AtomicUsize,
    freed: Notify,
}

impl ByteBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: AtomicUsize::new(0), freed: Notify::new() }
    }

    /// Counts the bytes of a submission. They may exceed the limit, because the slot was reserved
    /// before.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> BudgetGuard {
        self.taken.fetch_add(bytes, Ordering::SeqCst);
        BudgetGuard { budget: self.clone(), bytes }
    }

    /// Waits until the bytes in use are below the limit. A single submission may exceed the limit.
    pub(crate) async fn wait(&self) {
        while !self.is_free() {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Registered before the check, so that no notification is missed.
            freed.as_mut().enable();
            if self.is_free() {
                return;
            }
            freed.await;
        }
    }

    /// Returns whether the bytes in use are below the limit.
    pub(crate) fn is_free(&self) -> bool {
        self.taken.load(Ordering::SeqCst) < self.limit
    }
}

/// A number of bytes in use. Dropping the guard releases them.
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
        let before = self.budget.taken.fetch_sub(self.bytes, Ordering::SeqCst);
        if before >= self.budget.limit && before - self.bytes < self.budget.limit {
            self.budget.freed.notify_waiters();
        }
    }
}
