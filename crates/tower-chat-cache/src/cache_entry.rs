//! A conversation's entry in the cache.

use std::sync::{self, Arc, PoisonError};

use tower_chat_core::telemetry::GaugeGuard;

use crate::{
    cached::Cached,
    sync::{Mutex, MutexGuard},
    telemetry,
};

/// The cache entry of one conversation. While a write is in flight, the entry has no content, but
/// stays in the cache. Removing the entry and inserting it again would cost more than all other
/// work of the cache for a write.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    cached: Mutex<Option<Arc<Cached>>>,
    /// The maximum size of the content, in bytes. The weight of the entry in the cache is this size
    /// plus the length of the key.
    pub(crate) max_bytes: u64,
    /// The guards that count the entry in the gauges. The lock is always one of the standard
    /// library, never one of shuttle, because moka calls [`removed`](Self::removed) while moka
    /// holds one of its own locks.
    counted: sync::Mutex<Vec<GaugeGuard>>,
}

/// An entry has space for some growth of its conversation. A conversation that grows further gets a
/// new entry with a larger weight. The space for growth is an eighth of the conversation's bytes,
/// but at least `1 / SMALL_PARTS` and at most `1 / LARGE_PARTS` of the cache's bound, and at most
/// the conversation's bytes.
const SMALL_PARTS: u64 = 1 << 15;
const LARGE_PARTS: u64 = 1 << 10;

impl CacheEntry {
    /// Creates an entry with space for a conversation and for its growth. Without the space for
    /// growth, each write would replace the entry. `max_bytes` is the bound of the cache.
    pub(crate) fn new(cached: Arc<Cached>, max_bytes: u64) -> Self {
        let bytes = cached.bytes();
        let more = (bytes / 8).clamp(max_bytes / SMALL_PARTS, max_bytes / LARGE_PARTS);
        let max_bytes = bytes.saturating_add(more.min(bytes));
        let counted = sync::Mutex::new(telemetry::cached(max_bytes));
        Self { cached: Mutex::new(Some(cached)), max_bytes, counted }
    }

    /// Stops counting the entry in the gauges. moka calls this method when it removes an entry from
    /// the cache. Dropping the entry would not be sufficient, because moka drops it only later.
    pub(crate) fn removed(&self) {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn get(&self) -> Option<Arc<Cached>> {
        self.content().clone()
    }

    /// Removes and returns the content. The empty entry stays in the cache.
    pub(crate) fn take(&self) -> Option<Arc<Cached>> {
        self.content().take()
    }

    /// Sets the content. Returns the content as an error if its size does not fit the weight of the
    /// entry.
    pub(crate) fn put(&self, cached: Arc<Cached>) -> Result<(), Arc<Cached>> {
        let bytes = cached.bytes();
        if bytes > self.max_bytes || bytes < self.max_bytes / 4 {
            return Err(cached);
        }
        *self.content() = Some(cached);
        Ok(())
    }

    fn content(&self) -> MutexGuard<'_, Option<Arc<Cached>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
