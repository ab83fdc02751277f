//! All cached conversations.

use std::{
    fmt,
    sync::{Arc, PoisonError, Weak, atomic::Ordering},
};

use futures_util::future::{FutureExt, ready};
use moka::{policy::EvictionPolicy, sync::Cache};
use tower_chat_core::{
    ConversationKey,
    store::author::{LoadFrom, Write},
};

use crate::{
    cache_entry::CacheEntry,
    cached::{Cached, ReadAt},
    in_flight::{InFlight, InFlightTable, LoadFuture, SharedLoad},
    load_guard::LoadGuard,
    submission::{Keys, Submission},
    sync::{AtomicU64, Mutex, MutexGuard},
    telemetry,
};

/// The maximum size of a cached conversation, in bytes, because moka's weights have the type `u32`.
const LARGEST: u64 = u32::MAX as u64;

/// The cached conversations. While a write to a conversation is in flight, the conversation's entry
/// is empty. A load is cached only if no write was submitted since the load began.
pub(crate) struct Conversations {
    entries: Cache<ConversationKey, Arc<CacheEntry>>,
    in_flight: Mutex<InFlightTable>,
    ticks: AtomicU64,
    max_bytes: u64,
    /// The number of bytes that were inserted since [`keep`](Self::keep) has last called moka to
    /// enforce its bound.
    inserted_bytes: AtomicU64,
}

impl Conversations {
    pub(crate) fn new(max_bytes: u64) -> Self {
        let entries = Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|key: &ConversationKey, entry: &Arc<CacheEntry>| {
                let names = key.scope().len() + key.id().len();
                u32::try_from(entry.max_bytes.saturating_add(names as u64)).unwrap_or(u32::MAX)
            })
            .eviction_policy(EvictionPolicy::lru())
            .eviction_listener(|key, entry: Arc<CacheEntry>, cause| {
                entry.removed();
                if cause.was_evicted() {
                    telemetry::evicted(&key);
                }
            })
            .build();
        Self {
            entries,
            in_flight: Mutex::default(),
            ticks: AtomicU64::new(0),
            max_bytes,
            inserted_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, key: &ConversationKey) -> Option<Arc<Cached>> {
        self.entries.get(key)?.get()
    }

    /// Returns the number of cached conversations, and their size in bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.entries.run_pending_tasks();
        (self.entries.entry_count(), self.entries.weighted_size())
    }

    /// Begins a read that is not shared with other callers.
    pub(crate) fn read(self: &Arc<Self>, key: &ConversationKey, read: ReadAt) -> LoadGuard {
        let mut in_flight = self.in_flight();
        self.read_in(in_flight.of(key), key, read)
    }

    /// Returns the load in flight that may be shared, or begins a load if there is none. If another
    /// load has finished since the caller's lookup in the cache, returns the cached history.
    pub(crate) fn load(
        self: &Arc<Self>,
        key: &ConversationKey,
        from: Option<&LoadFrom>,
        read: ReadAt,
        is_fresh: impl FnOnce(ReadAt) -> bool,
        load: impl FnOnce(LoadGuard) -> LoadFuture,
    ) -> SharedLoad {
        let mut all = self.in_flight();
        let cached = self.get(key).filter(|cached| cached.covers(from));
        if let Some(cached) = cached.filter(|cached| is_fresh(cached.read))
            && let Some(history) = cached.history()
        {
            let load = ready(Ok(history)).boxed().shared();
            return SharedLoad { load, from: from.cloned(), read: cached.read };
        }
        let in_flight = all.of(key);
        let sufficient = in_flight
            .shared_load
            .as_ref()
            .filter(|shared_load| shared_load.from.is_none() || shared_load.from.as_ref() == from);
        let under_way = sufficient.and_then(|SharedLoad { load, from, read }| {
            Some(SharedLoad { load: load.upgrade()?, from: from.clone(), read: *read })
        });
        if let Some(shared_load) = under_way {
            return shared_load;
        }
        let load_guard = self.read_in(in_flight, key, read);
        let load = load(load_guard).shared();
        let shared_load = SharedLoad { load, from: from.cloned(), read };
        // A load that begins during a submission may not include the submitted writes, so later
        // callers must not share it.
        if in_flight.submitting == 0 {
            let weak = shared_load.load.downgrade();
            in_flight.shared_load = weak.map(|load| SharedLoad { load, from: from.cloned(), read });
        }
        shared_load
    }

    fn read_in(
        self: &Arc<Self>,
        in_flight: &mut InFlight,
        key: &ConversationKey,
        read: ReadAt,
    ) -> LoadGuard {
        in_flight.readers += 1;
        let generation = (in_flight.submitting == 0).then_some(in_flight.generation);
        LoadGuard { conversations: self.clone(), key: key.clone(), generation, read }
    }

    pub(crate) fn submit(self: &Arc<Self>, writes: &[Write]) -> Submission {
        let mut keys = Keys::new();
        for write in writes {
            if !keys.contains(write.key()) {
                keys.push(write.key().clone());
            }
        }
        let mut all = self.in_flight();
        for key in &keys {
            let own = || writes.iter().filter(|write| write.key() == key);
            let leaves_revision = own().any(|write| write.result() == write.expected());
            let in_flight = all.of(key);
            let known = self.take_state(in_flight, key);
            let is_overtaken = in_flight.may_be_reordered && leaves_revision;
            in_flight.begin();
            in_flight.may_be_reordered |= leaves_revision;
            // Usually there is no other reference to the state, so `make_mut` changes it in place.
            in_flight.after_writes = known.filter(|_| !is_overtaken).and_then(|mut known| {
                let is_known = Arc::make_mut(&mut known).apply(own());
                is_known.then_some(known)
            });
        }
        Submission::new(self.clone(), keys)
    }

    /// Begins a change after which the state of the conversation is unknown: a fork, a deletion, a
    /// prune or a rewrite.
    pub(crate) fn change(self: &Arc<Self>, key: &ConversationKey) -> Submission {
        let mut all = self.in_flight();
        let in_flight = all.of(key);
        in_flight.begin();
        in_flight.after_writes = None;
        self.forget(key, &mut in_flight.entry);
        Submission::new(self.clone(), Keys::from_iter([key.clone()]))
    }

    /// Removes and returns the cached state, or, if writes are in flight, the state after these
    /// writes.
    fn take_state(&self, in_flight: &mut InFlight, key: &ConversationKey) -> Option<Arc<Cached>> {
        if in_flight.unsettled > 0 {
            return in_flight.after_writes.take();
        }
        self.find(key, &mut in_flight.entry)?.take()
    }

    /// Begins the addition or removal of a summary. The cached messages remain valid, because only
    /// the summary in the head changes.
    pub(crate) fn change_summary(self: &Arc<Self>, key: &ConversationKey) -> Submission {
        let mut all = self.in_flight();
        let in_flight = all.of(key);
        let known = self.take_state(in_flight, key);
        in_flight.begin();
        in_flight.after_writes =
            known.map(|known| Arc::new(Arc::unwrap_or_clone(known).without_summary()));
        Submission::new(self.clone(), Keys::from_iter([key.clone()]))
    }

    /// Caches the result of a read, unless the cache has newer state or a write was submitted since
    /// the read began.
    pub(crate) fn learn(
        &self,
        key: &ConversationKey,
        generation: Option<u64>,
        read: ReadAt,
        learned: impl FnOnce(Option<&Cached>) -> Option<Cached>,
    ) {
        let mut all = self.in_flight();
        let Some(in_flight) = all.get_mut(key) else { return };
        if generation != Some(in_flight.generation) || in_flight.submitting > 0 {
            return;
        }
        if in_flight.unsettled > 0 {
            let is_newer =
                in_flight.after_writes.as_ref().is_none_or(|known| known.read.tick < read.tick);
            if is_newer && let Some(learned) = learned(in_flight.after_writes.as_deref()) {
                in_flight.after_writes = Some(Arc::new(learned));
            }
            return;
        }
        let known = self.get(key);
        if known.as_ref().is_none_or(|known| known.read.tick < read.tick)
            && let Some(learned) = learned(known.as_deref())
        {
            // moka frees an evicted entry later, so the weak reference may still refer to an entry
            // that is no longer in the cache.
            in_flight.entry = Weak::new();
            self.keep(key, &mut in_flight.entry, Arc::new(learned));
        }
    }

    /// Returns the entry of a conversation. The weak reference saves the lookup, if it is valid.
    fn find(&self, key: &ConversationKey, entry: &mut Weak<CacheEntry>) -> Option<Arc<CacheEntry>> {
        if let Some(found) = entry.upgrade() {
            return Some(found);
        }
        let found = self.entries.get(key)?;
        *entry = Arc::downgrade(&found);
        Some(found)
    }

    /// Stores a conversation in its entry, or in a new entry if it does not fit into the existing
    /// one.
    pub(crate) fn keep(
        &self,
        key: &ConversationKey,
        entry: &mut Weak<CacheEntry>,
        mut cached: Arc<Cached>,
    ) {
        if cached.bytes() > LARGEST {
            return self.forget(key, entry);
        }
        let old = self.find(key, entry);
        let before = old.as_ref().map_or(0, |old| old.max_bytes);
        if let Some(old) = old {
            match old.put(cached) {
                Ok(()) => return,
                Err(back) => cached = back,
            }
        }
        let new = Arc::new(CacheEntry::new(cached, self.max_bytes));
        *entry = Arc::downgrade(&new);
        let more = new.max_bytes.saturating_sub(before);
        self.entries.insert(key.clone(), new);
        // moka enforces its bound in batches. With large entries, the cache would exceed the bound
        // by too much between two batches.
        let since = self.inserted_bytes.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        if since > self.max_bytes / 64 {
            self.inserted_bytes.store(0, Ordering::Relaxed);
            self.entries.run_pending_tasks();
        }
    }

    pub(crate) fn forget(&self, key: &ConversationKey, entry: &mut Weak<CacheEntry>) {
        *entry = Weak::new();
        self.entries.invalidate(key);
    }

    /// Evicts an entry as moka does, but returns the entry, so that it is not freed yet.
    #[cfg(test)]
    pub(crate) fn evict(&self, key: &ConversationKey) -> Option<Arc<CacheEntry>> {
        self.entries.remove(key)
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, InFlightTable> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations")
            .field("conversations", &self.entries.entry_count())
            .field("bytes", &self.entries.weighted_size())
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
