//! A conversation's entry in the cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cached::Cached;

/// A place for what is kept of one conversation. It stays in the cache while a write is under way
/// and nothing is in it, since to take it out and put it back costs more than the write's own part.
#[derive(Debug)]
pub(crate) struct Kept {
    cached: Mutex<Option<Arc<Cached>>>,
    /// How many bytes the cache counts for it.
    pub(crate) room: u64,
}

/// Into how many parts the bytes of the whole cache are divided for conversations that grow: each
/// gets room for an eighth of what it has, at least for a small part and at most for a large one.
const SMALL_PARTS: u64 = 1 << 15;
const LARGE_PARTS: u64 = 1 << 10;

impl Kept {
    /// A place for a conversation and a little of what it will grow by, so that the cache need not
    /// count anew after every write.
    pub(crate) fn new(cached: Arc<Cached>, max_bytes: u64) -> Self {
        let bytes = cached.bytes();
        let more = (bytes / 8).clamp(max_bytes / SMALL_PARTS, max_bytes / LARGE_PARTS);
        let room = bytes.saturating_add(more.min(bytes));
        Self { cached: Mutex::new(Some(cached)), room }
    }

    pub(crate) fn get(&self) -> Option<Arc<Cached>> {
        self.content().clone()
    }

    /// Leaves the place empty.
    pub(crate) fn take(&self) -> Option<Arc<Cached>> {
        self.content().take()
    }

    /// Puts something into the place, or gives it back if that does not fit or wastes much.
    pub(crate) fn put(&self, cached: Arc<Cached>) -> Result<(), Arc<Cached>> {
        let bytes = cached.bytes();
        if bytes > self.room || bytes < self.room / 4 {
            return Err(cached);
        }
        *self.content() = Some(cached);
        Ok(())
    }

    fn content(&self) -> MutexGuard<'_, Option<Arc<Cached>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
