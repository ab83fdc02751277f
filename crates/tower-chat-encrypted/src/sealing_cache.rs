//! Caches the data that sealing (encrypting and authenticating) a write needs: the sealed heads of
//! conversations, and the digests of their newest messages.
//!
//! - A *life* is a random value that distinguishes a conversation from a deleted one with the same
//!   key.
//! - An *incarnation* is a random number that changes when a conversation is created again, loses
//!   its oldest runs (a prune) or is rewritten, and when another attempt (execution) takes over its
//!   run.
//! - A *digest* covers a message and all messages before it.
//! - The messages of an *open run* are staged: stored, but not yet committed to the history.
//! - A *submission* is the writes of one call of `append`.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tower_chat_core::{
    ConversationKey,
    store::{
        Head, Revision, ServiceIdChange,
        author::{Close, Write},
    },
};

use crate::{
    EncryptionError,
    chain::{Digest, Kind, Linked},
    digests::Digests,
    range::SealedRange,
    seal::{Expected, ExpectedLife, Life, new_life},
};

/// The sealed head of a conversation: its life, and the values that only this crate reads. The
/// inner store contains the sealed head in place of the service id (the id under which the model's
/// service has the history), so that a write changes its head and its messages in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SealedHead {
    pub(crate) life: Life,
    pub(crate) content: HeadContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadContent {
    /// The sequence number of the last message that may have the [first
    /// format](crate#the-former-formats).
    pub(crate) former: u64,
    /// The sequence number of the last message that may have one of the former formats, which have
    /// no digests. `None` if all messages may have such a format.
    #[serde(default)]
    pub(crate) unchained: Option<u64>,
    /// The minimum and the maximum number of pruned messages. The two differ while a prune is in
    /// progress.
    pub(crate) pruned: (u64, u64),
    pub(crate) service_id: Option<Arc<str>>,
    /// Whether the service id changes with the commit of the open run.
    pub(crate) is_change: bool,
    /// The digest of the final message of the newest run that was committed by a write without
    /// messages. Only this field shows that the run is committed, because the message itself is
    /// marked as staged.
    #[serde(default)]
    pub(crate) committed: Option<Digest>,
}

impl SealedHead {
    /// Returns the life and the formats that messages and rows of the conversation must have.
    pub(crate) fn expected(head: Option<&Self>) -> Expected {
        match head {
            Some(head) => Expected::Life(ExpectedLife {
                life: head.life,
                first_format: head.content.former,
                second_format: head.content.unchained,
                committed: head.content.committed,
            }),
            None => Expected::First,
        }
    }

    pub(crate) fn service_id_change(&self) -> Option<ServiceIdChange> {
        let change = match &self.content.service_id {
            Some(id) => ServiceIdChange::Set(id.clone()),
            None => ServiceIdChange::Clear,
        };
        self.content.is_change.then_some(change)
    }

    /// Creates the first sealed head of a conversation. `head` was read from the inner store.
    pub(crate) fn begun(life: Life, head: &Head) -> Self {
        let content = HeadContent {
            former: head.revision.sequence,
            unchained: Some(head.revision.sequence),
            pruned: (head.pruned, head.pruned),
            service_id: head.service_id.clone(),
            is_change: false,
            committed: None,
        };
        Self { life, content }
    }

    fn begun_by(write: &Write, pruned: u64, life: Life) -> Self {
        let content = HeadContent {
            former: write.expected().sequence,
            unchained: Some(write.expected().sequence),
            pruned: (pruned, pruned),
            service_id: None,
            is_change: false,
            committed: None,
        };
        Self { life, content }
    }

    fn unchanged(mut self) -> Self {
        self.content.is_change = false;
        self
    }
}

/// The state of one incarnation of a conversation, as this process knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    head: Option<SealedHead>,
    /// Whether the head was read from the inner store. Until then, each write contains the head
    /// again, because an earlier write with the head may have failed.
    is_confirmed: bool,
    /// The head that becomes the sealed head when the open run is committed.
    open: Option<SealedHead>,
    pub(crate) pruned: u64,
    /// The digests of the newest messages.
    recent_digests: Vec<RecentDigest>,
    /// The digests of some messages of the whole conversation.
    pub(crate) digests: Arc<Digests>,
    /// The part of the conversation that the next run loads.
    pub(crate) range: Option<SealedRange>,
    /// The sequence numbers and digests of the messages that the open run has staged.
    staged: Vec<(u64, Digest)>,
    /// The number of messages before the open run, if there is one.
    visible: Option<u64>,
}

/// The digest of a message.
#[derive(Debug, Clone)]
struct RecentDigest {
    sequence: u64,
    digest: Digest,
    /// Whether the message is known to be stored.
    is_stored: Arc<AtomicBool>,
}

/// The maximum number of digests per incarnation. The digest of the newest message alone is not
/// sufficient, because a write that is submitted again may follow an earlier message.
const MAX_RECENT_DIGESTS: usize = 16;

/// The data that are needed to seal a write.
pub(crate) struct SealingInput {
    pub(crate) life: Life,
    /// The head that the write stores in place of the service id.
    pub(crate) head: Option<SealedHead>,
    /// The state of the conversation after the write is stored.
    pub(crate) after: Known,
}

impl Known {
    pub(crate) fn sealing_input(mut self, write: &Write) -> Result<SealingInput, EncryptionError> {
        let staged = write.as_staged();
        let known = match staged {
            Some(_) => self.open.clone().or_else(|| self.head.clone().map(SealedHead::unchanged)),
            None => self.head.clone(),
        };
        let mut head = match known {
            Some(known) => known,
            None => SealedHead::begun_by(write, self.pruned, new_life()?),
        };
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
        // The first write after messages of a former format begins a chain of digests.
        let begins_chain = seals && head.content.unchained.is_none();
        if begins_chain {
            let at = write.expected().sequence;
            head.content.unchained = Some(at);
            self.recent_digests.clear();
        }
        if let Some(at) = head.content.unchained.filter(|at| *at == write.expected().sequence)
            && self.recent_digest(at).is_none()
        {
            self.put_recent_digest(at, Digest::START, Arc::new(AtomicBool::new(true)));
        }
        let committed = self.committed_by(write, &head)?;
        head.content.committed = committed.or(head.content.committed);
        let is_stored = change.is_some()
            || begins_chain
            || committed.is_some()
            || (seals && !self.is_confirmed);
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
        let begins_run = write.begins_attempt() && staged.is_some_and(|it| it.lease.attempt == 1);
        if staged.is_some() && (begins_run || self.visible.is_none()) {
            self.visible = Some(write.expected().sequence);
            self.staged.clear();
        }
        Ok(SealingInput { life, head: stored, after: self })
    }

    /// Returns the digest of a message, if it is known.
    pub(crate) fn recent_digest(&self, sequence: u64) -> Option<Digest> {
        self.recent_digests
            .iter()
            .find(|recent| recent.sequence == sequence)
            .map(|recent| recent.digest)
    }

    fn put_recent_digest(&mut self, sequence: u64, digest: Digest, is_stored: Arc<AtomicBool>) {
        self.recent_digests.retain(|recent| recent.sequence != sequence);
        // The digest of the message before the open run must remain, because the next message needs
        // it if the run is discarded.
        if self.recent_digests.len() >= MAX_RECENT_DIGESTS {
            let visible = self.visible;
            if let Some(first) =
                self.recent_digests.iter().position(|recent| Some(recent.sequence) != visible)
            {
                self.recent_digests.remove(first);
            }
        }
        self.recent_digests.push(RecentDigest { sequence, digest, is_stored });
    }

    /// Records the digest of a message that was sealed as a part of a write.
    pub(crate) fn written(&mut self, sequence: u64, kind: Kind, digest: Digest) {
        self.put_recent_digest(sequence, digest, Arc::default());
        Arc::make_mut(&mut self.digests).push(sequence, digest);
        if kind == Kind::Staged {
            self.staged.retain(|(staged, _)| *staged < sequence);
            self.staged.push((sequence, digest));
        }
    }

    /// Returns the digest of the final staged message of the run that a write commits, for the
    /// head. Returns `None` if the write contains messages, which themselves show that the run is
    /// committed.
    fn committed_by(
        &self,
        write: &Write,
        head: &SealedHead,
    ) -> Result<Option<Digest>, EncryptionError> {
        let last = write.expected().sequence;
        let is_chained = head.content.unchained.is_some_and(|unchained| last > unchained);
        if write.close() != Some(Close::Commit) || !write.messages().is_empty() || !is_chained {
            return Ok(None);
        }
        match self.staged.iter().find(|(sequence, _)| *sequence == last) {
            Some((_, digest)) => Ok(Some(*digest)),
            None if self.visible.is_some_and(|visible| last > visible) => {
                Err(EncryptionError::HeadNotRead { key: write.key().clone() })
            }
            None => Ok(None),
        }
    }

    /// Updates the state after a write that commits or discards an open run.
    fn close(&mut self, write: &Write) {
        match write.close() {
            Some(Close::Discard { visible }) => {
                self.recent_digests.retain(|recent| recent.sequence <= visible);
                Arc::make_mut(&mut self.digests).truncate(visible);
                self.staged.clear();
            }
            Some(Close::Commit) => {}
            None => return,
        }
        self.visible = None;
    }
}

/// The known states of the most recently read or written conversations.
#[derive(Debug, Default)]
pub(crate) struct SealingCache(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<ConversationKey, Conversation>,
    earlier: HashMap<ConversationKey, Conversation>,
    /// The number of submissions to the inner store so far.
    submitted: u64,
}

/// The known states of one conversation.
#[derive(Debug, Default)]
struct Conversation {
    /// The incarnations with their states. The newest incarnation is last.
    known: Vec<(u64, Known)>,
    /// The number of sealed writes that are not yet submitted to the inner store.
    sealed: usize,
    /// The number of the submission with the newest write of the conversation.
    submitted: u64,
}

/// The moment at which a read began: the number of submissions before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64);

impl Conversation {
    /// Returns whether a read that began at this moment includes every write of this process.
    fn is_unchanged(&self, since: Moment) -> bool {
        self.sealed == 0 && self.submitted <= since.0
    }
}

/// The maximum number of conversations in `recent`. The full map replaces `earlier`.
const GENERATION: usize = 65_536;

/// The maximum number of incarnations of a conversation whose state is in memory.
const INCARNATIONS: usize = 8;

/// The sealed writes of one submission.
#[derive(Debug, Default)]
pub(crate) struct Submission {
    /// The conversations of the writes.
    keys: Vec<ConversationKey>,
    /// For each sealed message, whether it is stored.
    stored: Vec<Arc<AtomicBool>>,
}

impl Submission {
    /// Records that the submission is stored.
    pub(crate) fn is_stored(&self) {
        self.stored.iter().for_each(|stored| stored.store(true, Ordering::Release));
    }
}

impl SealingCache {
    /// Returns the known state of the conversation before a write; `None` if its head was not read.
    /// A write that creates its conversation begins a new life, and a repetition of the write gets
    /// the same life.
    pub(crate) fn before(&self, write: &Write) -> Option<Known> {
        let mut states = self.lock();
        if write.expected() != Revision::ABSENT {
            return states.get(write.key(), write.expected().incarnation);
        }
        let begun = states.get(write.key(), write.result().incarnation).unwrap_or_default();
        let first = |head: SealedHead| {
            let mut head = head.unchanged();
            head.content.service_id = None;
            head.content.pruned = (0, 0);
            head.content.committed = None;
            (head.content.unchained == Some(0)).then_some(head)
        };
        let head = begun.head.or(begun.open).and_then(first);
        Some(Known { head, ..Known::default() })
    }

    /// Records that a write was sealed. The caller must call [`submitted`](Self::submitted) later.
    pub(crate) fn after(&self, write: &Write, mut known: Known, submission: &mut Submission) {
        known.close(write);
        let sealed = known
            .recent_digests
            .iter()
            .filter(|recent| recent.sequence > write.expected().sequence);
        submission.stored.extend(sealed.map(|recent| recent.is_stored.clone()));
        submission.keys.push(write.key().clone());
        let mut states = self.lock();
        states.put(write.key(), write.result().incarnation, known);
        if let Some(conversation) = states.recent.get_mut(write.key()) {
            conversation.sealed += 1;
        }
    }

    /// Records that the writes were submitted, so that later reads include them.
    pub(crate) fn submitted(&self, submission: &Submission) {
        let states = &mut *self.lock();
        states.submitted += 1;
        for key in &submission.keys {
            let submitted = states.submitted;
            let Some(conversation) = states.find(key) else { continue };
            conversation.sealed = conversation.sealed.saturating_sub(1);
            conversation.submitted = submitted;
        }
    }

    /// Returns the moment at which a read begins.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.lock().submitted)
    }

    /// Removes the state of a conversation that a read has not found, unless this process has
    /// written to the conversation since the read began.
    pub(crate) fn forget(&self, key: &ConversationKey, since: Moment) {
        let states = &mut *self.lock();
        for known in [&mut states.recent, &mut states.earlier] {
            if known.get(key).is_some_and(|conversation| conversation.is_unchanged(since)) {
                known.remove(key);
            }
        }
    }

    /// Updates the state from a head that was read.
    pub(crate) fn learn(
        &self,
        key: &ConversationKey,
        head: &Head,
        sealed: Option<&SealedHead>,
        open: Option<&SealedHead>,
        since: Moment,
    ) {
        if head.revision == Revision::ABSENT {
            return;
        }
        self.change(key, head.revision, since, |known| {
            // Another process has deleted the conversation, and the same run has created it again.
            if known
                .head
                .as_ref()
                .zip(sealed)
                .is_some_and(|(known, found)| known.life != found.life)
            {
                *known = Known::default();
            }
            if let Some(sealed) = sealed {
                known.head = Some(sealed.clone());
                known.is_confirmed = true;
            }
            known.open = open.cloned();
            known.pruned = head.pruned;
            known.visible = head.open_run.as_ref().map(|open| open.visible);
        });
    }

    /// Returns whether the digest of this message is known, and the message is stored.
    pub(crate) fn has_stored_digest(
        &self,
        key: &ConversationKey,
        revision: Revision,
        sequence: u64,
    ) -> bool {
        let known = self.lock().get(key, revision.incarnation);
        known.is_some_and(|known| {
            let recent = known.recent_digests.iter().find(|recent| recent.sequence == sequence);
            recent.is_some_and(|recent| recent.is_stored.load(Ordering::Acquire))
        })
    }

    /// Records the digest of a message that was read.
    pub(crate) fn learn_recent_digest(
        &self,
        key: &ConversationKey,
        revision: Revision,
        sequence: u64,
        digest: Digest,
        since: Moment,
    ) {
        let is_stored = Arc::new(AtomicBool::new(true));
        self.change(key, revision, since, |known| {
            known.put_recent_digest(sequence, digest, is_stored);
            Arc::make_mut(&mut known.digests).push(sequence, digest);
        });
    }

    /// Replaces the digests of the conversation with those of messages that were read.
    pub(crate) fn learn_digests(
        &self,
        key: &ConversationKey,
        revision: Revision,
        digests: &Digests,
        since: Moment,
    ) {
        let digests = Arc::new(digests.clone());
        self.change(key, revision, since, |known| known.digests = digests);
    }

    /// Records which part of the conversation the next run loads.
    pub(crate) fn learn_range(
        &self,
        key: &ConversationKey,
        revision: Revision,
        range: Option<SealedRange>,
        since: Moment,
    ) {
        if revision != Revision::ABSENT {
            self.change(key, revision, since, |known| known.range = range);
        }
    }

    /// Returns which part of the conversation the next run loads, if this part is known.
    pub(crate) fn range(&self, key: &ConversationKey) -> Option<SealedRange> {
        let mut states = self.lock();
        let (_, newest) = states.find(key)?.known.last()?;
        newest.range.clone()
    }

    /// Records the messages of an open run that were read.
    pub(crate) fn learn_staged(
        &self,
        key: &ConversationKey,
        revision: Revision,
        visible: u64,
        messages: &[Option<Linked>],
        since: Moment,
    ) {
        self.change(key, revision, since, |known| {
            known.visible = Some(visible);
            known.staged.clear();
            for (sequence, linked) in (visible.saturating_add(1)..).zip(messages) {
                let Some(Linked { digest, .. }) = *linked else { continue };
                known.put_recent_digest(sequence, digest, Arc::new(AtomicBool::new(true)));
                known.staged.push((sequence, digest));
            }
        });
    }

    /// Updates the state after a read, unless this process has written to the conversation since
    /// the read began: the read may not include that write.
    fn change(
        &self,
        key: &ConversationKey,
        revision: Revision,
        since: Moment,
        change: impl FnOnce(&mut Known),
    ) {
        let mut states = self.lock();
        if states.find(key).is_some_and(|conversation| !conversation.is_unchanged(since)) {
            return;
        }
        let mut known = states.get(key, revision.incarnation).unwrap_or_default();
        change(&mut known);
        states.put(key, revision.incarnation, known);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn find(&mut self, key: &ConversationKey) -> Option<&mut Conversation> {
        self.recent.get_mut(key).or_else(|| self.earlier.get_mut(key))
    }

    fn get(&mut self, key: &ConversationKey, incarnation: u64) -> Option<Known> {
        if !self.recent.contains_key(key) {
            let conversation = self.earlier.remove(key)?;
            self.make_room();
            self.recent.insert(key.clone(), conversation);
        }
        let known = &self.recent.get(key)?.known;
        known.iter().find(|(of, _)| *of == incarnation).map(|(_, known)| known.clone())
    }

    fn put(&mut self, key: &ConversationKey, incarnation: u64, known: Known) {
        if !self.recent.contains_key(key) {
            let earlier = self.earlier.remove(key).unwrap_or_default();
            self.make_room();
            self.recent.insert(key.clone(), earlier);
        }
        let Some(conversation) = self.recent.get_mut(key) else { return };
        conversation.known.retain(|(of, _)| *of != incarnation);
        if conversation.known.len() >= INCARNATIONS {
            conversation.known.remove(0);
        }
        conversation.known.push((incarnation, known));
    }

    fn make_room(&mut self) {
        if self.recent.len() >= GENERATION {
            self.earlier = mem::take(&mut self.recent);
        }
    }
}
