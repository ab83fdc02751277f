//! The room for what waits to be written, in bytes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Counts the bytes of the submissions that are not finished, and keeps those waiting who want to
/// reserve a place while there are too many.
#[derive(Debug)]
pub(crate) struct Room {
    limit: usize,
    taken: AtomicUsize,
    freed: Notify,
}

impl Room {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, taken: AtomicUsize::new(0), freed: Notify::new() }
    }

    /// Takes room, whether or not there is any: the place for it was reserved before.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Taken {
        self.taken.fetch_add(bytes, Ordering::SeqCst);
        Taken { room: self.clone(), bytes }
    }

    /// Waits until less than the limit is taken. An empty queue has room for anything.
    pub(crate) async fn wait(&self) {
        while !self.is_free() {
            let mut freed = std::pin::pin!(self.freed.notified());
            // From now on nothing that is given back is missed.
            freed.as_mut().enable();
            if self.is_free() {
                return;
            }
            freed.await;
        }
    }

    /// Whether less than the limit is taken.
    pub(crate) fn is_free(&self) -> bool {
        self.taken.load(Ordering::SeqCst) < self.limit
    }
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Taken {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let before = self.room.taken.fetch_sub(self.bytes, Ordering::SeqCst);
        if before >= self.room.limit && before - self.bytes < self.room.limit {
            self.room.freed.notify_waiters();
        }
    }
}
