//! The options of a cache: its size, and the condition under which entries are revalidated.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The condition under which a cached conversation is compared with the inner store before its use.
/// The comparison reads only the head of the conversation (its data besides the messages).
///
/// ```
/// use std::time::Duration;
/// use tower_chat_cache::{CacheOptions, Revalidation};
///
/// let alone = CacheOptions::new().with_revalidation(Revalidation::Never);
/// let among_others =
///     CacheOptions::new().with_revalidation(Revalidation::After(Duration::from_secs(2)));
/// # let _ = (alone, among_others);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Revalidation {
    /// Never. Use this setting if only this process writes to the store, through this one cache. A
    /// run of a cached conversation then reads nothing from the inner store. The cache notices a
    /// write of another process only when a write of this process fails with a conflict.
    Never,
    /// Before every use. A load therefore includes all writes, of all processes, that were stored
    /// before the load began.
    #[default]
    Always,
    /// Before a use, if at least this time has passed since the conversation was last read or
    /// compared. During this time, a load may lack writes of other processes.
    After(Duration),
}

/// The options of a [`CachingStore`](crate::CachingStore).
#[derive(Clone)]
pub struct CacheOptions {
    pub(crate) max_bytes: u64,
    pub(crate) revalidation: Revalidation,
    clock: Arc<dyn Fn() -> Instant + Send + Sync>,
}

impl CacheOptions {
    /// Creates the default options: 256 MiB, and [`Revalidation::Always`].
    pub fn new() -> Self {
        Self {
            max_bytes: 256 << 20,
            revalidation: Revalidation::default(),
            clock: Arc::new(Instant::now),
        }
    }

    /// Sets the maximum size of the cached conversations in memory, in bytes. The size is estimated
    /// from the content of the conversations. The least recently used conversations are evicted
    /// first. A conversation that exceeds this bound or 4 GiB is not cached.
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the condition under which a cached conversation is compared with the inner store.
    #[must_use]
    pub fn with_revalidation(mut self, revalidation: Revalidation) -> Self {
        self.revalidation = revalidation;
        self
    }

    /// Sets the clock that [`Revalidation::After`] uses.
    #[must_use]
    pub fn with_clock(mut self, now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(now);
        self
    }

    pub(crate) fn now(&self) -> Instant {
        (self.clock)()
    }
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheOptions")
            .field("max_bytes", &self.max_bytes)
            .field("revalidation", &self.revalidation)
            .finish_non_exhaustive()
    }
}
