//! A conversation's entry in the cache.

use std::sync::{self, Arc, PoisonError};

use tower_chat_core::telemetry::GaugeGuard;

use crate::{
    cached::Cached,
    sync::{Mutex, MutexGuard},
    telemetry,
};

/// The cache entry of one conversation. While a write is in flight the entry stays in the cache,
/// empty, because removing and inserting an entry costs more than the rest of the cache's work for
/// a write.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    cached: Mutex<Option<Arc<Cached>>>,
    /// The number of bytes that the content may have. The weight of the entry in the cache is this
    /// number plus the length of the key.
    pub(crate) max_bytes: u64,
    /// Counts the entry in the gauges. The counter has a lock that shuttle does not control, because moka
    /// calls [`removed`](Self::removed) while it holds its own lock.
    counted: sync::Mutex<Vec<GaugeGuard>>,
}

/// An entry may grow by an eighth of its conversation's bytes before it is replaced by one with
/// another weight. The growth is at least `1 / SMALL_PARTS` and at most `1 / LARGE_PARTS` of the
/// cache's bound, and at most the conversation's bytes.
const SMALL_PARTS: u64 = 1 << 15;
const LARGE_PARTS: u64 = 1 << 10;

impl CacheEntry {
    /// Creates an entry with space for a conversation and some growth, so that not every write
    /// replaces the entry. `max_bytes` is the bound of the cache.
    pub(crate) fn new(cached: Arc<Cached>, max_bytes: u64) -> Self {
        let bytes = cached.bytes();
        let more = (bytes / 8).clamp(max_bytes / SMALL_PARTS, max_bytes / LARGE_PARTS);
        let max_bytes = bytes.saturating_add(more.min(bytes));
        let counted = sync::Mutex::new(telemetry::cached(max_bytes));
        Self { cached: Mutex::new(Some(cached)), max_bytes, counted }
    }

    /// Stops counting the entry in the gauges. Called when the entry was removed from the cache,
    /// because moka frees it later.
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

    /// Sets the content, or returns it if its size does not fit the entry's weight.
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
