//! Runs that are durable and not yet part of the history.

use std::{sync::Arc, time::SystemTime};

use super::{Head, SequencePosition, ServiceIdChange, author::ToolRecord};
use crate::{Message, RunId};

/// The right to write an open run, and until when it is held.
///
/// Each process that takes a run up writes under a number one higher than the last: what an
/// earlier one still sends is refused, whatever the clocks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How often the run was taken up, from 1.
    pub attempt: u32,
    /// The [`StoreHandle`](super::StoreHandle) through which it is written.
    pub holder: u64,
    /// When it was taken or renewed, by the writer's clock, to the millisecond.
    pub renewed_at: SystemTime,
    /// Until when others should leave the run alone, by the writer's clock, to the millisecond;
    /// `None` once the attempt has ended, [`Lease::ABANDONED`] once the run's caller has
    /// disconnected.
    pub until: Option<SystemTime>,
}

impl Lease {
    /// The value of [`until`](Self::until) of a run whose caller disconnected before its end: it
    /// dropped the response, its task was aborted, or a timeout above the run fired. It is a time
    /// that has passed, so that a reader that does not know the value takes the lease for one that
    /// has ended.
    pub const ABANDONED: SystemTime = SystemTime::UNIX_EPOCH;

    /// Whether the caller of the run disconnected before its end. The mark is written by the process
    /// that had the run, so a run whose process died does not have it.
    pub fn is_abandoned(&self) -> bool {
        self.until == Some(Self::ABANDONED)
    }
}

/// A run at the end of a conversation that was neither committed nor discarded. It owns the
/// end: nobody else can write there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenRun {
    /// The run.
    pub run: RunId,
    /// Who writes it.
    pub lease: Lease,
    /// When its first write was made, by the writer's clock, to the millisecond.
    pub opened_at: SystemTime,
    /// How many messages of the conversation readers see; those of the run come after them.
    pub visible: u64,
    /// What becomes of the service id when the run is committed.
    pub service_id: Option<ServiceIdChange>,
    /// The text of an answer that was cut off, if it was kept.
    pub partial_text: Option<Arc<str>>,
}

impl OpenRun {
    /// A run whose first write comes after this many messages that readers see.
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

    /// The run after another of its writes.
    pub fn apply(&mut self, staged: &Staged) {
        self.lease = staged.lease;
        if let Some(change) = &staged.service_id {
            self.service_id = Some(change.clone());
        }
        if let Some(text) = &staged.partial_text {
            self.partial_text = (!text.is_empty()).then(|| text.clone());
        }
    }

    /// Whether a write of the open run may be stored: it is of the same run, under its present lease
    /// or one of a later attempt, and discards from the position where the run began. Of two that take
    /// a run over under the same number, only the first holds it.
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

    /// Whether somebody may still be at work on the run at this time.
    pub fn is_held_at(&self, now: SystemTime) -> bool {
        self.lease.until.is_some_and(|until| now < until)
    }
}

/// What makes a write one of an open run.
///
/// A run of two writes: the first opens it, the second commits it.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::{
///     ConversationKey, MemoryStore, Message, MessageId, RunId,
///     store::{HistoryStore, Lease, Revision, author::{Close, Staged, Write}},
/// };
///
/// let store = MemoryStore::new();
/// let (key, run, now) = (ConversationKey::new("alice", "travel"), RunId::new(), SystemTime::now());
/// let until = Some(now + Duration::from_secs(15));
/// let lease = Lease { attempt: 1, holder: store.handle().holder(), renewed_at: now, until };
/// let staged = |close| Staged { lease, close, service_id: None, partial_text: None };
///
/// let input = [Message::user("Book seat 7.").into()];
/// let first = Write::new(key.clone(), MessageId { run, index: 0 }, Revision::ABSENT, input)
///     .staged(staged(None))
///     .beginning_attempt();
/// let expected = first.result();
/// store.append(store.reserve().await?, vec![first]).await?;
/// assert!(store.load(&key).await?.messages.is_empty()); // durable, and not seen
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
    /// The right to write the run.
    pub lease: Lease,
    /// What becomes of the run.
    pub close: Option<Close>,
    /// What becomes of the service id at the commit, where that changes.
    pub service_id: Option<ServiceIdChange>,
    /// The text of an answer that was cut off; an empty one forgets what was kept.
    pub partial_text: Option<Arc<str>>,
}

/// How an open run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// All of it becomes part of the history. Where the run was taken over, the conversation is in
    /// another incarnation afterwards, so that nothing an earlier attempt still sends can match.
    Commit,
    /// None of it is left; the conversation ends after its last message that readers see.
    Discard {
        /// How many these are: [`OpenRun::visible`].
        visible: u64,
    },
}

/// An open run with everything that was staged of it, as it is at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenRunContent {
    /// The conversation's head.
    pub head: Head,
    /// The run.
    pub open: OpenRun,
    /// Its messages, with their ids; they are numbered on from [`OpenRun::visible`].
    pub messages: Vec<Arc<Message>>,
    /// What is known of the tool calls in these messages, in their order.
    pub tools: Vec<ToolRecord>,
}

impl OpenRunContent {
    /// The content of an open run.
    pub fn new(
        head: Head,
        open: OpenRun,
        messages: Vec<Arc<Message>>,
        tools: Vec<ToolRecord>,
    ) -> Self {
        Self { head, open, messages, tools }
    }
}

/// The intention to run a tool call that was waiting for approval: it holds only if nobody else
/// has begun the call since its record was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The call.
    pub call: SequencePosition,
    /// When it was begun before, as its record says; `None` if it never was.
    pub started_at: Option<SystemTime>,
}

/// Replaces a message that a run has staged; the new one keeps its id. `staged` are the run's
/// messages, that follow `visible` others. Nothing changes where the run has no such message.
pub fn replace_staged(
    staged: &mut [Arc<Message>],
    visible: u64,
    sequence: u64,
    message: &Arc<Message>,
) {
    let index = sequence.checked_sub(visible).and_then(|number| number.checked_sub(1));
    let index = index.and_then(|index| usize::try_from(index).ok());
    let Some(found) = index.and_then(|index| staged.get_mut(index)) else { return };
    let mut message = message.clone();
    if message.id != found.id {
        Arc::make_mut(&mut message).id = found.id;
    }
    *found = message;
}
