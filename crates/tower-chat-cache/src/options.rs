//! How much is kept, and for how long it is believed.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// When what is kept is compared with the store inside before it is used. The comparison reads a
/// head and no messages.
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
    /// Not at all: for a store that this process alone writes to, through this one cache. A warm
    /// run then reads nothing. What another process writes is noticed at the next conflict.
    Never,
    /// Each time, so that a load sees what any process had written before it began.
    #[default]
    Always,
    /// When it was last read or compared at least this long ago: for so long, what other processes
    /// write may not be seen.
    After(Duration),
}

/// Settings of a [`CachingStore`](crate::CachingStore).
#[derive(Clone)]
pub struct CacheOptions {
    pub(crate) max_bytes: u64,
    pub(crate) revalidation: Revalidation,
    clock: Arc<dyn Fn() -> Instant + Send + Sync>,
}

impl CacheOptions {
    /// The defaults: 256 MiB, compared with the store inside each time.
    pub fn new() -> Self {
        Self {
            max_bytes: 256 << 20,
            revalidation: Revalidation::default(),
            clock: Arc::new(Instant::now),
        }
    }

    /// How many bytes of memory the kept conversations may take up, as estimated from what is in
    /// them. Those that were not used for longest go first. One that is larger by itself is not
    /// kept, nor is any beyond 4 GiB.
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// When what is kept is compared with the store inside.
    #[must_use]
    pub fn with_revalidation(mut self, revalidation: Revalidation) -> Self {
        self.revalidation = revalidation;
        self
    }

    /// The clock that [`Revalidation::After`] goes by.
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
