//! What is sealed of a conversation's head, and what this process knows of it.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tower_chat_core::{
    ConversationKey,
    store::{
        Head, Revision, ServiceIdChange,
        author::{Close, Write},
    },
};

use crate::seal::{Expected, Life};

/// Kept sealed instead of the service id, which the store inside changes in one transaction
/// with messages, and leaves alone otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SealedHead {
    pub(crate) life: Life,
    pub(crate) content: HeadContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadContent {
    /// The number of the last message that may be of the former format.
    pub(crate) former: u64,
    /// How many messages were pruned, at least and at most. They differ while a prune is under way.
    pub(crate) pruned: (u64, u64),
    pub(crate) service_id: Option<Arc<str>>,
    /// In an open run: the service id changes with its commit.
    pub(crate) is_change: bool,
}

impl SealedHead {
    /// What messages and rows of the conversation must be.
    pub(crate) fn expected(head: Option<&Self>) -> Expected {
        match head {
            Some(head) => Expected::Life(head.life, head.content.former),
            None => Expected::Former,
        }
    }

    pub(crate) fn service_id_change(&self) -> Option<ServiceIdChange> {
        let change = match &self.content.service_id {
            Some(id) => ServiceIdChange::Set(id.clone()),
            None => ServiceIdChange::Clear,
        };
        self.content.is_change.then_some(change)
    }

    /// Of a conversation that has none and is read, in a life of its own.
    pub(crate) fn begun(life: Life, head: &Head) -> Self {
        let content = HeadContent {
            former: head.revision.sequence,
            pruned: (head.pruned, head.pruned),
            service_id: head.service_id.clone(),
            is_change: false,
        };
        Self { life, content }
    }

    fn begun_by(write: &Write, pruned: u64) -> Self {
        let content = HeadContent {
            former: write.expected().sequence,
            pruned: (pruned, pruned),
            service_id: None,
            is_change: false,
        };
        Self { life: write.run(), content }
    }

    fn unchanged(mut self) -> Self {
        self.content.is_change = false;
        self
    }
}

/// What is known of a conversation in one incarnation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    head: Option<SealedHead>,
    /// It was read. Until then each write stores it again, since the first may have failed.
    is_confirmed: bool,
    /// The head of an open run, which its commit puts in place.
    open: Option<SealedHead>,
    pruned: u64,
}

/// How a write is sealed.
pub(crate) struct Step {
    pub(crate) life: Life,
    /// What the write puts instead of the service id.
    pub(crate) head: Option<SealedHead>,
    /// What is known once it is stored.
    pub(crate) after: Known,
}

impl Known {
    pub(crate) fn step(mut self, write: &Write) -> Step {
        let staged = write.as_staged();
        let known = match staged {
            Some(_) => self.open.clone().or_else(|| self.head.clone().map(SealedHead::unchanged)),
            None => self.head.clone(),
        };
        let mut head = known.unwrap_or_else(|| SealedHead::begun_by(write, self.pruned));
        let change = match staged {
            Some(staged) => staged.service_id.as_ref(),
            None => write.service_id(),
        };
        if let Some(change) = change {
            head.content.is_change = true;
            head.content.service_id = match change {
                ServiceIdChange::Set(id) => Some(id.clone()),
                ServiceIdChange::Clear => None,
            };
        }
        let partial_text = staged.and_then(|staged| staged.partial_text.as_ref());
        let seals = !write.messages().is_empty()
            || !write.tools().is_empty()
            || partial_text.is_some_and(|text| !text.is_empty());
        let is_stored = change.is_some() || (seals && !self.is_confirmed);
        let life = head.life;
        let stored = is_stored.then_some(head);
        match (staged, &stored) {
            (None, Some(head)) => self.head = Some(head.clone().unchanged()),
            (Some(_), Some(head)) => self.open = Some(head.clone()),
            (_, None) => {}
        }
        match write.close() {
            Some(Close::Commit) => {
                if let Some(open) = self.open.take() {
                    self.head = Some(open.unchanged());
                }
            }
            Some(Close::Discard { .. }) => self.open = None,
            None => {}
        }
        Step { life, head: stored, after: self }
    }
}

/// What is known of the conversations that were read or written last.
#[derive(Debug, Default)]
pub(crate) struct Lives(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<Id, Known>,
    earlier: HashMap<Id, Known>,
}

/// A conversation in one incarnation.
type Id = (ConversationKey, u64);

/// So many conversations are known for certain; the memory they take is bounded by twice as many.
const GENERATION: usize = 65_536;

impl Lives {
    /// What a write continues; `None` if the conversation's head was not read.
    pub(crate) fn before(&self, write: &Write) -> Option<Known> {
        if write.expected() == Revision::ABSENT {
            return Some(Known::default());
        }
        self.lock().get((write.key().clone(), write.expected().incarnation))
    }

    pub(crate) fn after(&self, write: &Write, known: Known) {
        self.lock().put((write.key().clone(), write.result().incarnation), known);
    }

    /// Notes what was read.
    pub(crate) fn learn(
        &self,
        key: &ConversationKey,
        (revision, pruned): (Revision, u64),
        head: Option<&SealedHead>,
        open: Option<&SealedHead>,
    ) {
        if revision == Revision::ABSENT {
            return;
        }
        let id = (key.clone(), revision.incarnation);
        let mut lives = self.lock();
        let mut known = lives.get(id.clone()).unwrap_or_default();
        // A read that began before a write of this process does not show its head.
        if let Some(head) = head {
            known.head = Some(head.clone());
            known.is_confirmed = true;
        }
        known.open = open.cloned();
        known.pruned = pruned;
        lives.put(id, known);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, id: Id) -> Option<Known> {
        if let Some(known) = self.recent.get(&id) {
            return Some(known.clone());
        }
        let known = self.earlier.remove(&id)?;
        self.put(id, known.clone());
        Some(known)
    }

    fn put(&mut self, id: Id, known: Known) {
        if self.recent.len() >= GENERATION {
            self.earlier = mem::take(&mut self.recent);
        }
        self.recent.insert(id, known);
    }
}
