//! What is kept of all conversations.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::future::{FutureExt, ready};
use moka::{policy::EvictionPolicy, sync::Cache};
use tower_chat_core::{ConversationKey, store::Write};

use crate::{
    cached::{Cached, ReadAt},
    kept::Kept,
    reading::Reading,
    submission::{Keys, Submission},
    traffic::{AllTraffic, Flight, LoadFuture, Traffic},
};

/// The most bytes of a conversation that is kept: heavier ones the cache cannot tell apart.
const LARGEST: u64 = u32::MAX as u64;

/// The kept conversations.
///
/// What is kept was read, or made by applying acknowledged writes, with nothing under way. While a
/// write of a conversation is under way nothing is kept of it; a reading counts only if no
/// submission came since it began.
pub(crate) struct Conversations {
    kept: Cache<ConversationKey, Arc<Kept>>,
    traffic: Mutex<AllTraffic>,
    ticks: AtomicU64,
    max_bytes: u64,
    /// How many bytes were kept since the bound was last enforced.
    kept_since: AtomicU64,
}

impl Conversations {
    pub(crate) fn new(max_bytes: u64) -> Self {
        let kept = Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|key: &ConversationKey, kept: &Arc<Kept>| {
                let names = key.scope().len() + key.id().len();
                u32::try_from(kept.room.saturating_add(names as u64)).unwrap_or(u32::MAX)
            })
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self {
            kept,
            traffic: Mutex::default(),
            ticks: AtomicU64::new(0),
            max_bytes,
            kept_since: AtomicU64::new(0),
        }
    }

    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, key: &ConversationKey) -> Option<Arc<Cached>> {
        self.kept.get(key)?.get()
    }

    /// How many conversations are kept, and their bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.kept.run_pending_tasks();
        (self.kept.entry_count(), self.kept.weighted_size())
    }

    /// Begins a reading that nobody else waits for.
    pub(crate) fn read(self: &Arc<Self>, key: &ConversationKey, read: ReadAt) -> Reading {
        let mut traffic = self.traffic();
        self.read_in(traffic.of(key), key, read)
    }

    /// The load under way, or a new one; or what came of one that has landed since `is_fresh` was
    /// last asked.
    pub(crate) fn load(
        self: &Arc<Self>,
        key: &ConversationKey,
        read: ReadAt,
        is_fresh: impl FnOnce(ReadAt) -> bool,
        load: impl FnOnce(Reading) -> LoadFuture,
    ) -> Flight {
        let mut all = self.traffic();
        if let Some(cached) = self.get(key).filter(|cached| is_fresh(cached.read))
            && let Some(history) = cached.history()
        {
            return Flight { load: ready(Ok(history)).boxed().shared(), read: cached.read };
        }
        let traffic = all.of(key);
        let under_way = traffic
            .flight
            .as_ref()
            .and_then(|flight| Some(Flight { load: flight.load.upgrade()?, read: flight.read }));
        if let Some(flight) = under_way {
            return flight;
        }
        let reading = self.read_in(traffic, key, read);
        let flight = Flight { load: load(reading).shared(), read };
        // What began while a submission was being made may not see it.
        if traffic.submitting == 0 {
            let weak = flight.load.downgrade();
            traffic.flight = weak.map(|load| Flight { load, read });
        }
        flight
    }

    fn read_in(
        self: &Arc<Self>,
        traffic: &mut Traffic,
        key: &ConversationKey,
        read: ReadAt,
    ) -> Reading {
        traffic.readers += 1;
        let generation = (traffic.submitting == 0).then_some(traffic.generation);
        Reading { conversations: self.clone(), key: key.clone(), generation, read }
    }

    /// Begins to submit writes, each to its conversation.
    pub(crate) fn submit(self: &Arc<Self>, writes: &[Write]) -> Submission {
        let mut keys = Keys::new();
        for write in writes {
            if !keys.contains(write.key()) {
                keys.push(write.key().clone());
            }
        }
        let mut all = self.traffic();
        for key in &keys {
            let own = || writes.iter().filter(|write| write.key() == key);
            let leaves_revision = own().any(|write| write.result() == write.expected());
            let traffic = all.of(key);
            let known = self.known(traffic, key);
            let is_overtaken = traffic.is_unordered && leaves_revision;
            traffic.begin();
            traffic.is_unordered |= leaves_revision;
            // Nobody else has it as a rule, and it is changed in place.
            traffic.ahead = known.filter(|_| !is_overtaken).and_then(|mut known| {
                let is_known = Arc::make_mut(&mut known).apply(own());
                is_known.then_some(known)
            });
        }
        Submission::new(self.clone(), keys)
    }

    /// Begins to change a conversation in another way.
    pub(crate) fn change(self: &Arc<Self>, key: &ConversationKey) -> Submission {
        let mut all = self.traffic();
        let traffic = all.of(key);
        traffic.begin();
        traffic.ahead = None;
        self.forget(key, &mut traffic.place);
        Submission::new(self.clone(), Keys::from_iter([key.clone()]))
    }

    /// Takes what is known, with everything that is under way.
    fn known(&self, traffic: &mut Traffic, key: &ConversationKey) -> Option<Arc<Cached>> {
        if traffic.unsettled > 0 {
            return traffic.ahead.take();
        }
        self.find(key, &mut traffic.place)?.take()
    }

    /// Changes what is known by a reading, unless something newer is known or it saw too little.
    pub(crate) fn learn(
        &self,
        key: &ConversationKey,
        generation: Option<u64>,
        read: ReadAt,
        learned: impl FnOnce(Option<&Cached>) -> Cached,
    ) {
        let mut all = self.traffic();
        let Some(traffic) = all.get_mut(key) else { return };
        if generation != Some(traffic.generation) || traffic.submitting > 0 {
            return;
        }
        if traffic.unsettled > 0 {
            let is_newer = traffic.ahead.as_ref().is_none_or(|known| known.read.tick < read.tick);
            if is_newer {
                traffic.ahead = Some(Arc::new(learned(traffic.ahead.as_deref())));
            }
            return;
        }
        let known = self.get(key);
        if known.as_ref().is_none_or(|known| known.read.tick < read.tick) {
            // A remembered place that the cache has dropped is not always gone at once.
            traffic.place = Weak::new();
            self.keep(key, &mut traffic.place, Arc::new(learned(known.as_deref())));
        }
    }

    /// The place of a conversation, found again if it is not known.
    fn find(&self, key: &ConversationKey, place: &mut Weak<Kept>) -> Option<Arc<Kept>> {
        if let Some(kept) = place.upgrade() {
            return Some(kept);
        }
        let found = self.kept.get(key)?;
        *place = Arc::downgrade(&found);
        Some(found)
    }

    /// Keeps what is known of a conversation, in its place.
    pub(crate) fn keep(
        &self,
        key: &ConversationKey,
        place: &mut Weak<Kept>,
        mut cached: Arc<Cached>,
    ) {
        if cached.bytes() > LARGEST {
            return self.forget(key, place);
        }
        let kept = self.find(key, place);
        let before = kept.as_ref().map_or(0, |kept| kept.room);
        if let Some(kept) = kept {
            match kept.put(cached) {
                Ok(()) => return,
                Err(back) => cached = back,
            }
        }
        let kept = Arc::new(Kept::new(cached, self.max_bytes));
        *place = Arc::downgrade(&kept);
        let more = kept.room.saturating_sub(before);
        self.kept.insert(key.clone(), kept);
        // The cache would let some entries gather before it looks at their weight.
        let since = self.kept_since.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        if since > self.max_bytes / 64 {
            self.kept_since.store(0, Ordering::Relaxed);
            self.kept.run_pending_tasks();
        }
    }

    /// Gives up the place of a conversation of which nothing is known.
    pub(crate) fn forget(&self, key: &ConversationKey, place: &mut Weak<Kept>) {
        *place = Weak::new();
        self.kept.invalidate(key);
    }

    /// Drops a conversation as the cache does to make room, except that its place is not freed yet.
    #[cfg(test)]
    pub(crate) fn evict(&self, key: &ConversationKey) -> Option<Arc<Kept>> {
        self.kept.remove(key)
    }

    pub(crate) fn traffic(&self) -> MutexGuard<'_, AllTraffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations")
            .field("conversations", &self.kept.entry_count())
            .field("bytes", &self.kept.weighted_size())
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
