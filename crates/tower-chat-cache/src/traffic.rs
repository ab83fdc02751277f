//! Who reads and writes conversations at the moment.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use foldhash::fast::RandomState;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tower_chat_core::{
    ConversationKey,
    store::{History, StoreError},
};

use crate::{
    cached::{Cached, ReadAt},
    kept::Kept,
};

pub(crate) type Loaded = Result<History, StoreError>;
pub(crate) type LoadFuture = BoxFuture<'static, Loaded>;

/// What is under way at all conversations. Those at rest stay a while, since the next write would
/// have to find their place in the cache again.
#[derive(Debug, Default)]
pub(crate) struct AllTraffic {
    /// As many as are under way and a few more, so a hash that is merely seeded at random is enough
    /// against keys chosen to collide.
    of: HashMap<ConversationKey, Traffic, RandomState>,
    /// How many there may be before those at rest go.
    most: usize,
}

/// How many conversations at rest may stay.
pub(crate) const AT_REST: usize = 64;

impl AllTraffic {
    /// That of a conversation, to begin something at it.
    pub(crate) fn of(&mut self, key: &ConversationKey) -> &mut Traffic {
        if self.of.len() >= self.most {
            self.of.retain(|_, traffic| !traffic.is_over());
            self.most = AT_REST + 2 * self.of.len();
        }
        self.of.entry(key.clone()).or_default()
    }

    /// That of a conversation at which something was begun.
    pub(crate) fn get_mut(&mut self, key: &ConversationKey) -> Option<&mut Traffic> {
        self.of.get_mut(key)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        self.of.values().all(Traffic::is_over)
    }
}

/// What is under way at one conversation.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) readers: usize,
    /// The load that others who come now may wait for too.
    pub(crate) flight: Option<Flight<WeakShared<LoadFuture>>>,
    /// Counts submissions.
    pub(crate) generation: u64,
    /// Submissions that the store inside may not have got yet.
    pub(crate) submitting: usize,
    /// Submissions whose outcome was not seen.
    pub(crate) unsettled: usize,
    /// One of them leaves the revision as it was, so that others may have overtaken it.
    pub(crate) is_unordered: bool,
    /// What will be known if all of them are stored.
    pub(crate) ahead: Option<Arc<Cached>>,
    /// Where what is known is kept, if that was found already and is in the cache still.
    pub(crate) place: Weak<Kept>,
}

/// A load under way.
#[derive(Debug)]
pub(crate) struct Flight<F = Shared<LoadFuture>> {
    pub(crate) load: F,
    pub(crate) read: ReadAt,
}

impl Traffic {
    pub(crate) fn begin(&mut self) {
        self.generation += 1;
        self.flight = None;
        self.submitting += 1;
        self.unsettled += 1;
    }

    /// Nobody waits for the load any more that began then.
    pub(crate) fn landed(&mut self, read: ReadAt) {
        if self.flight.as_ref().is_some_and(|flight| flight.read.tick == read.tick) {
            self.flight = None;
        }
    }

    fn is_over(&self) -> bool {
        self.readers == 0 && self.unsettled == 0
    }
}
