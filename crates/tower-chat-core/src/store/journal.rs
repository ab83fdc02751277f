//! Open runs: durable, but not yet part of the history.

use std::{sync::Arc, time::SystemTime};

use super::{Head, SequencePosition, ServiceIdChange, author::ToolRecord};
use crate::{Message, RunId};

/// The right of one attempt (execution of a run) to write its open run, until the lease expires.
///
/// The number of each attempt is one higher than that of the previous attempt. To refuse the
/// writes of an earlier attempt, the store compares these numbers, not the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The [`StoreHandle::holder`](super::StoreHandle::holder) of the store through which the run
    /// is written.
    pub holder: u64,
    /// The time at which the lease was acquired or renewed, by the writer's clock, to the
    /// millisecond.
    pub renewed_at: SystemTime,
    /// The end of the lease.
    pub until: LeaseEnd,
}

/// The end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// No process has a lease on the run, because the attempt has ended or because the store [needs
    /// no leases](super::StoreHandle::exclusive).
    NotHeld,
    /// The caller of the run disconnected before its end: the response was dropped, its task was
    /// aborted, or a timeout above the run fired. The process that executes the run writes this
    /// mark, unless it dies first.
    Abandoned,
    /// The time at which the lease expires, by the writer's clock, to the millisecond. Until then
    /// other processes should not resume the run.
    At(SystemTime),
}

impl LeaseEnd {
    /// The stored form of [`Abandoned`](Self::Abandoned): a time in the past.
    const ABANDONED: SystemTime = SystemTime::UNIX_EPOCH;

    /// Returns the time at which the lease expires, if a process has the lease.
    pub fn time(self) -> Option<SystemTime> {
        match self {
            Self::NotHeld | Self::Abandoned => None,
            Self::At(time) => Some(time),
        }
    }

    /// Returns the time that stores write for this end: `None` if no process has a lease, and the
    /// Unix epoch if the run is abandoned.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tower_chat_core::store::LeaseEnd;
    /// for end in [LeaseEnd::NotHeld, LeaseEnd::Abandoned, LeaseEnd::At(SystemTime::now())] {
    ///     assert_eq!(LeaseEnd::from_stored(end.to_stored()), end);
    /// }
    /// ```
    pub fn to_stored(self) -> Option<SystemTime> {
        match self {
            Self::NotHeld => None,
            Self::Abandoned => Some(Self::ABANDONED),
            Self::At(time) => Some(time),
        }
    }

    /// Returns the end of a lease for a time that [`to_stored`](Self::to_stored) returned.
    pub fn from_stored(time: Option<SystemTime>) -> Self {
        match time {
            None => Self::NotHeld,
            Some(Self::ABANDONED) => Self::Abandoned,
            Some(time) => Self::At(time),
        }
    }
}

/// A run that is neither committed nor discarded. The messages of the run are at the end of its
/// conversation. While the run is open, no other run can write to the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenRun {
    /// The run.
    pub run: RunId,
    /// The lease of the process that writes the run.
    pub lease: Lease,
    /// The time of the first write of the run, by the writer's clock, to the millisecond.
    pub opened_at: SystemTime,
    /// The sequence number of the last message that is visible to readers; 0 if there is none. The
    /// messages of the run follow this message.
    pub visible: u64,
    /// The change of the service id that takes effect when the run is committed.
    pub service_id: Option<ServiceIdChange>,
    /// The text of an unfinished answer, if it was stored.
    pub partial_text: Option<Arc<str>>,
}

impl OpenRun {
    /// Creates an open run with this lease. The messages of the run follow the message with the
    /// sequence number `visible`.
    pub fn new(run: RunId, lease: Lease, visible: u64) -> Self {
        Self {
            run,
            lease,
            opened_at: lease.renewed_at,
            visible,
            service_id: None,
            partial_text: None,
        }
    }

    /// Updates the run after one of its writes was stored.
    pub fn apply(&mut self, staged: &Staged) {
        self.lease = staged.lease;
        if let Some(change) = &staged.service_id {
            self.service_id = Some(change.clone());
        }
        if let Some(text) = &staged.partial_text {
            self.partial_text = (!text.is_empty()).then(|| text.clone());
        }
    }

    /// Returns whether a staged write may be stored while this run is open:
    ///
    /// - The write belongs to this run.
    /// - The attempt of the write is later than the attempt in the current lease, or is the same
    ///   attempt of the same holder. If two processes resume a run with the same attempt number,
    ///   the first one to write therefore gets the lease.
    /// - If the write discards the run, the `visible` of its [`Close::Discard`] is equal to
    ///   [`visible`](Self::visible).
    pub fn admits(&self, run: RunId, staged: &Staged) -> bool {
        let lease = &self.lease;
        let is_holder = staged.lease.attempt > lease.attempt
            || (staged.lease.attempt == lease.attempt && staged.lease.holder == lease.holder);
        let is_in_place = match staged.close {
            Some(Close::Discard { visible }) => visible == self.visible,
            Some(Close::Commit) | None => true,
        };
        self.run == run && is_holder && is_in_place
    }

    /// Returns whether the lease is valid at this time. A process may then be executing the run.
    pub fn is_held_at(&self, now: SystemTime) -> bool {
        self.lease.until.time().is_some_and(|until| now < until)
    }
}

/// The properties of a write of an open run.
///
/// The example writes a run in two writes: the first opens the run, the second commits it.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::{
///     ConversationKey, MemoryStore, Message, MessageId, RunId,
///     store::{HistoryStore, Lease, LeaseEnd, Revision, author::{Close, Staged, Write}},
/// };
///
/// let store = MemoryStore::new();
/// let (key, run, now) = (ConversationKey::new("alice", "travel"), RunId::new(), SystemTime::now());
/// let until = LeaseEnd::At(now + Duration::from_secs(15));
/// let lease = Lease { attempt: 1, holder: store.handle().holder(), renewed_at: now, until };
/// let staged = |close| Staged { lease, close, service_id: None, partial_text: None };
///
/// let input = [Message::user("Book seat 7.").into()];
/// let first = Write::new(key.clone(), MessageId { run, index: 0 }, Revision::ABSENT, input)
///     .staged(staged(None))
///     .beginning_attempt();
/// let expected = first.result();
/// store.append(store.reserve().await?, vec![first]).await?;
/// assert!(store.load(&key).await?.messages.is_empty()); // durable, and not visible
///
/// let answer = [Message::assistant("Seat 7 is yours.").into()];
/// let last = Write::new(key.clone(), MessageId { run, index: 1 }, expected, answer)
///     .staged(staged(Some(Close::Commit)));
/// store.append(store.reserve().await?, vec![last]).await?;
/// assert_eq!(store.load(&key).await?.messages.len(), 2);
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The lease under which the run is written.
    pub lease: Lease,
    /// The end of the run, if this is the last write of the run.
    pub close: Option<Close>,
    /// The change of the service id that takes effect at the commit. `None` preserves a change from
    /// an earlier write of the run.
    pub service_id: Option<ServiceIdChange>,
    /// The text of an unfinished answer. An empty text deletes the stored one, and `None` does not
    /// change it.
    pub partial_text: Option<Arc<str>>,
}

/// The end of an open run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// All messages of the run become part of the history. If the run has had more than one
    /// attempt, the conversation gets a new incarnation, so that the store refuses late writes of
    /// earlier attempts.
    Commit,
    /// All messages of the run are deleted. The conversation then ends with its last visible
    /// message.
    Discard {
        /// The sequence number of the last visible message: [`OpenRun::visible`].
        visible: u64,
    },
}

/// An open run with all its staged messages and rows, as they were at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenRunContent {
    /// The conversation's head.
    pub head: Head,
    /// The run.
    pub open: OpenRun,
    /// The messages of the run, with their ids. The sequence numbers of the messages follow
    /// [`OpenRun::visible`].
    pub messages: Vec<Arc<Message>>,
    /// The rows of the record for the tool calls in these messages, in order.
    pub tools: Vec<ToolRecord>,
}

impl OpenRunContent {
    /// Creates the content of an open run.
    pub fn new(
        head: Head,
        open: OpenRun,
        messages: Vec<Arc<Message>>,
        tools: Vec<ToolRecord>,
    ) -> Self {
        Self { head, open, messages, tools }
    }
}

/// The intention to run a tool call that waits for approval. The claim is valid only if no other
/// attempt has begun the call since the author of the claim read the call's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The call.
    pub call: SequencePosition,
    /// The start time in the record that the author of the claim has read; `None` if the call was
    /// never begun.
    pub started_at: Option<SystemTime>,
}
