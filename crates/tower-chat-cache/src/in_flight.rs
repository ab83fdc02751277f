//! The operations in flight, by conversation.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use foldhash::fast::RandomState;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tower_chat_core::{
    ConversationKey,
    store::{History, StoreError, author::LoadFrom},
};

use crate::{
    cache_entry::CacheEntry,
    cached::{Cached, ReadAt},
};

pub(crate) type Loaded = Result<History, StoreError>;
pub(crate) type LoadFuture = BoxFuture<'static, Loaded>;

/// The operations in flight on all conversations. A conversation without an operation in flight
/// remains in the table until the next cleanup, because the table's reference to the cache entry
/// saves a lookup.
#[derive(Debug, Default)]
pub(crate) struct InFlightTable {
    by_conversation: HashMap<ConversationKey, InFlight, RandomState>,
    /// The size of the map at which the next cleanup removes the conversations without an
    /// operation.
    sweep_above: usize,
}

/// The minimum number of conversations that can be added to the table after a cleanup, before the
/// next cleanup.
pub(crate) const IDLE: usize = 64;

impl InFlightTable {
    pub(crate) fn of(&mut self, key: &ConversationKey) -> &mut InFlight {
        if self.by_conversation.len() >= self.sweep_above {
            self.by_conversation.retain(|_, in_flight| !in_flight.is_over());
            self.sweep_above = IDLE + 2 * self.by_conversation.len();
        }
        self.by_conversation.entry(key.clone()).or_default()
    }

    pub(crate) fn get_mut(&mut self, key: &ConversationKey) -> Option<&mut InFlight> {
        self.by_conversation.get_mut(key)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_conversation.len()
    }

    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        self.by_conversation.values().all(InFlight::is_over)
    }
}

/// The operations in flight on one conversation.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// The number of reads of the inner store in flight.
    pub(crate) readers: usize,
    /// The load that later callers may share.
    pub(crate) shared_load: Option<SharedLoad<WeakShared<LoadFuture>>>,
    /// The number of submissions so far.
    pub(crate) generation: u64,
    /// The number of submissions that the inner store may not have received yet.
    pub(crate) submitting: usize,
    /// The number of submissions without an outcome.
    pub(crate) unsettled: usize,
    /// Whether one of the submissions without an outcome does not change the revision. The inner
    /// store may then execute this submission before or after another one, because both expect the
    /// same revision.
    pub(crate) may_be_reordered: bool,
    /// The state of the conversation if the inner store stores all submissions without an outcome;
    /// `None` if this state is unknown.
    pub(crate) after_writes: Option<Arc<Cached>>,
    /// A reference to the cache entry, which saves a lookup while it is valid.
    pub(crate) entry: Weak<CacheEntry>,
}

/// A load in flight, which several callers may await.
#[derive(Debug)]
pub(crate) struct SharedLoad<F = Shared<LoadFuture>> {
    pub(crate) load: F,
    /// The part of the conversation that is loaded; `None` for all messages.
    pub(crate) from: Option<LoadFrom>,
    pub(crate) read: ReadAt,
}

impl InFlight {
    pub(crate) fn begin(&mut self) {
        self.generation += 1;
        self.shared_load = None;
        self.submitting += 1;
        self.unsettled += 1;
    }

    /// Stops sharing a load that has finished: later callers begin a new load.
    pub(crate) fn load_finished(&mut self, read: ReadAt) {
        if self.shared_load.as_ref().is_some_and(|shared_load| shared_load.read.tick == read.tick) {
            self.shared_load = None;
        }
    }

    fn is_over(&self) -> bool {
        self.readers == 0 && self.unsettled == 0
    }
}
