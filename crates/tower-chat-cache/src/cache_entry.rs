//! A conversation's entry in the cache.

use std::sync::{self, Arc, PoisonError};

use tower_chat_core::telemetry::GaugeGuard;

use crate::{
    cached::Cached,
    sync::{Mutex, MutexGuard},
    telemetry,
};

/// The cache entry of one conversation. While a write is in flight, the entry stays in the cache
/// without content, because removing the entry and inserting it again would cost more than all
/// other work of the cache for a write.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    cached: Mutex<Option<Arc<Cached>>>,
    /// The maximum size of the content, in bytes. The weight of the entry in the cache is this size
    /// plus the length of the key.
    pub(crate) max_bytes: u64,
    /// The guards that count the entry in the gauges. In the tests with `shuttle`, this lock is
    /// still one of the standard library, because moka calls [`removed`](Self::removed) while it
    /// holds a lock that `shuttle` does not control.
    counted: sync::Mutex<Vec<GaugeGuard>>,
}

/// An entry has space for the growth of its conversation: at least the bound of the cache divided
/// by this number, but never more than the size of the conversation.
const SMALL_PARTS: u64 = 1 << 15;
/// The space for growth is at most the bound of the cache divided by this number.
const LARGE_PARTS: u64 = 1 << 10;

impl CacheEntry {
    /// Creates an entry with space for a conversation and for its growth, so that not every write
    /// replaces the entry. `max_bytes` is the bound of the cache.
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tower_chat_core::{Message, store::History};

    use super::*;
    use crate::cached::ReadAt;

    /// Returns the cached state of a conversation with a text of this length.
    fn cached(length: usize) -> Arc<Cached> {
        let mut history = History::empty();
        history.extend([Arc::new(Message::user("x".repeat(length)))]);
        Arc::new(Cached::of_history(&history, ReadAt { tick: 1, time: Instant::now() }))
    }

    #[test]
    fn an_entry_refuses_content_that_is_larger_or_much_smaller_than_its_weight() {
        let entry = CacheEntry::new(cached(10_000), 1 << 20);
        let of_entry = usize::try_from(entry.max_bytes).unwrap();
        let without_text = usize::try_from(cached(0).bytes()).unwrap();
        let with_bytes = |bytes: usize| cached(bytes - without_text);
        assert!(entry.put(with_bytes(of_entry)).is_ok());
        assert!(entry.put(with_bytes(of_entry + 1)).is_err());
        assert!(entry.put(with_bytes(of_entry / 4)).is_ok());
        assert!(entry.put(with_bytes(of_entry / 4 - 1)).is_err());
        assert!(entry.put(with_bytes(of_entry / 4 - 500)).is_err());
    }
}
