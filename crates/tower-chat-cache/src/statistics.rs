//! The statistics of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry;

/// The hits, the misses and the size of a cache; see
/// [`CachingStore::statistics`](crate::CachingStore::statistics).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// The number of loads and heads that the cache returned without a read of the inner store.
    pub hits: u64,
    /// The number of loads and heads for which the cache read only the head from the inner store,
    /// because the head showed that the cached history is current.
    pub revalidated: u64,
    /// The number of loads and heads that the cache read from the inner store. Loads that shared
    /// the read of another caller are included.
    pub misses: u64,
    /// The number of cached conversations.
    pub conversations: u64,
    /// The estimated size of the cached conversations, in bytes.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    revalidated: AtomicU64,
    misses: AtomicU64,
}

impl Counters {
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        telemetry::answered("hit");
    }

    pub(crate) fn revalidated(&self) {
        self.revalidated.fetch_add(1, Ordering::Relaxed);
        telemetry::answered("revalidated");
    }

    pub(crate) fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        telemetry::answered("miss");
    }

    pub(crate) fn statistics(&self) -> CacheStatistics {
        CacheStatistics {
            hits: self.hits.load(Ordering::Relaxed),
            revalidated: self.revalidated.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            ..CacheStatistics::default()
        }
    }
}
