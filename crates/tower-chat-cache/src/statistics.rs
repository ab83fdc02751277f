//! What the cache was good for.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry;

/// How often the cache could answer, and how full it is; see
/// [`CachingStore::statistics`](crate::CachingStore::statistics).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Loads and heads that were answered without reading anything.
    pub hits: u64,
    /// Loads that were answered after a comparison with the head in the store inside, and heads that
    /// were read there and showed that the cached history is still right.
    pub revalidated: u64,
    /// Loads and heads that the store inside answered; loads that waited for another's too.
    pub misses: u64,
    /// How many conversations are kept.
    pub conversations: u64,
    /// How many bytes they take up, by estimate.
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
