//! One atomic append.

use std::sync::Arc;

use super::{
    ModelUsage, Revision, RunActivity,
    author::{Claim, Close, Staged, ToolRecord},
};
use crate::{ConversationKey, Message, MessageId, RunId};

/// Names a write, so that repeating it stores nothing twice.
///
/// It is the id of the write's first message, and so is stored with the messages themselves.
pub type WriteId = MessageId;

/// One atomic append to one conversation.
///
/// The messages are numbered on from [`id`](Self::id): each one's [`Message::id`] is set when the
/// write is made, so what a store keeps and what a caller holds carry the same ids.
///
/// ```
/// use tower_chat_core::{ConversationKey, Message, MessageId, RunId, store::{Revision, author::Write}};
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let key = ConversationKey::new("alice", "support");
/// let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
/// assert_eq!(write.messages()[0].id, Some(id));
/// assert_eq!(write.result().sequence, 1);
/// ```
///
/// A clone costs the same however much is written.
#[derive(Debug, Clone)]
pub struct Write(Arc<Content>);

#[derive(Debug, Clone)]
struct Content {
    key: ConversationKey,
    id: WriteId,
    expected: Revision,
    messages: Vec<Arc<Message>>,
    tools: Vec<ToolRecord>,
    claims: Vec<Claim>,
    service_id: Option<ServiceIdChange>,
    staged: Option<Staged>,
    begins_attempt: bool,
    replaced: Vec<(u64, Arc<Message>)>,
    activity: Option<RunActivity>,
    is_sealed: bool,
}

/// What a write does to the conversation's service id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceIdChange {
    /// The service now keeps the history under this id.
    Set(Arc<str>),
    /// The service does not keep it any more.
    Clear,
}

impl Write {
    /// A write that appends messages after the expected revision. `id` becomes the id of the
    /// first message, and the others count on from it.
    pub fn new(
        key: ConversationKey,
        id: WriteId,
        expected: Revision,
        messages: impl IntoIterator<Item = Arc<Message>>,
    ) -> Self {
        // What comes after the largest index is refused by `check_range`, and not left out here.
        let messages = messages.into_iter().enumerate().map(|(position, message)| {
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            let index = id.index.saturating_add(position);
            with_id(message, MessageId { run: id.run, index })
        });
        let messages: Vec<_> = messages.collect();
        let activity = Some(RunActivity::of_messages(&messages));
        Self(Arc::new(Content {
            key,
            id,
            expected,
            messages,
            tools: Vec::new(),
            claims: Vec::new(),
            service_id: None,
            staged: None,
            begins_attempt: false,
            replaced: Vec::new(),
            activity,
            is_sealed: false,
        }))
    }

    /// Marks the write as one of a wrapper that seals what it stores. A store that outlives its process
    /// remembers that it has such a write, and refuses from then on every change without the mark
    /// ([`StoreError::Sealed`](super::StoreError::Sealed)), except for a deletion.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        Arc::make_mut(&mut self.0).is_sealed = true;
        self
    }

    /// Says when the write is made, in which mode, and what it adds to the usage of its run. Without
    /// it a write is made now, and adds the tool calls that its messages ask for.
    #[must_use]
    pub fn with_activity(mut self, activity: RunActivity) -> Self {
        Arc::make_mut(&mut self.0).activity = Some(activity);
        self
    }

    /// Makes it a write of which the [directory](super::HistoryStore::conversations) says nothing: it
    /// belongs to no run, such as one by which a wrapper keeps its own state.
    #[must_use]
    pub fn without_activity(mut self) -> Self {
        Arc::make_mut(&mut self.0).activity = None;
        self
    }

    /// Also puts rows into the record of tool calls, each replacing the former row of its call.
    /// A row of a call in a message that the conversation does not hold afterwards is no row.
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<ToolRecord>) -> Self {
        Arc::make_mut(&mut self.0).tools = tools;
        self
    }

    /// Stores the write only if the claims hold: each call is
    /// [`PendingApproval`](crate::ToolStatus::PendingApproval) in a message that readers see, and
    /// was last begun when the claim says. What the claimed calls are afterwards is in
    /// [`tools`](Self::tools).
    #[must_use]
    pub fn with_claims(mut self, claims: Vec<Claim>) -> Self {
        Arc::make_mut(&mut self.0).claims = claims;
        self
    }

    /// Makes it a write of an open run, which it opens if there is none.
    ///
    /// Its messages are durable, and part of no history until the run is committed; the rows of
    /// tool calls in them likewise. A row of a call in a message that readers see is put in place
    /// at once, as in any write.
    #[must_use]
    pub fn staged(mut self, staged: Staged) -> Self {
        Arc::make_mut(&mut self.0).staged = Some(staged);
        self
    }

    /// Makes a staged write the first of an attempt at its run. The conversation is in an
    /// incarnation of the attempt's own afterwards, so that no write of another attempt, which
    /// would have the same name at the same position, is ever taken for one that is stored already.
    #[must_use]
    pub fn beginning_attempt(mut self) -> Self {
        Arc::make_mut(&mut self.0).begins_attempt = true;
        self
    }

    /// A write that commits a run also replaces messages that the run has staged
    /// before, by their sequences, as the final answer decides what of them is kept. Each has the id
    /// of the message in whose place it is put. The sequences are those of messages that the run has staged; a message of
    /// another run is never changed.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tower_chat_core::{
    ///     ConversationKey, Message, MessageId, RunId,
    ///     store::{Lease, Revision, author::{Close, Staged, Write}},
    /// };
    /// let id = MessageId { run: RunId::new(), index: 1 };
    /// let lease = Lease { attempt: 1, holder: 1, renewed_at: SystemTime::now(), until: None };
    /// let staged =
    ///     Staged { lease, close: Some(Close::Commit), service_id: None, partial_text: None };
    /// let at = Revision::ABSENT.after(id.run, 1);
    /// let key = ConversationKey::new("alice", "support");
    /// let write = Write::new(key, id, at, [Message::assistant("done").into()])
    ///     .staged(staged)
    ///     .replacing(vec![(1, Message::user("a shorter text").into())]);
    /// assert_eq!(write.replaced().len(), 1);
    /// ```
    #[must_use]
    pub fn replacing(mut self, replaced: Vec<(u64, Arc<Message>)>) -> Self {
        Arc::make_mut(&mut self.0).replaced = replaced;
        self
    }

    /// Also changes the conversation's service id, at once.
    #[must_use]
    pub fn with_service_id(mut self, change: ServiceIdChange) -> Self {
        Arc::make_mut(&mut self.0).service_id = Some(change);
        self
    }

    /// The conversation.
    pub fn key(&self) -> &ConversationKey {
        &self.0.key
    }

    /// The write's name.
    pub fn id(&self) -> WriteId {
        self.0.id
    }

    /// The run that writes.
    pub fn run(&self) -> RunId {
        self.0.id.run
    }

    /// The revision the conversation must have.
    pub fn expected(&self) -> Revision {
        self.0.expected
    }

    /// The revision it has afterwards.
    pub fn result(&self) -> Revision {
        let after = self.0.expected.after(self.0.id.run, self.0.messages.len());
        let Some(staged) = self.as_staged() else { return after };
        let after = match self.0.begins_attempt {
            true => after.taken_by(staged.lease.holder),
            false => after,
        };
        match staged.close {
            Some(Close::Discard { visible }) => after.back_to(visible, self.run()),
            Some(Close::Commit) if staged.lease.attempt > 1 => {
                after.back_to(after.sequence, self.run())
            }
            Some(Close::Commit) | None => after,
        }
    }

    /// Whether it is the [first of an attempt](Self::beginning_attempt) at its run.
    pub fn begins_attempt(&self) -> bool {
        self.0.begins_attempt
    }

    /// What makes it a write of an open run, if it is one.
    pub fn as_staged(&self) -> Option<&Staged> {
        self.0.staged.as_ref()
    }

    /// How the run ends with it, if it is the last of an open run.
    pub fn close(&self) -> Option<Close> {
        self.0.staged.as_ref()?.close
    }

    /// What stands instead of messages that the run has staged before, by sequence; of a write that
    /// [commits](Close::Commit) alone.
    pub fn replaced(&self) -> &[(u64, Arc<Message>)] {
        match self.close() {
            Some(Close::Commit) => &self.0.replaced,
            Some(Close::Discard { .. }) | None => &[],
        }
    }

    /// What must hold of tool calls for the write to be stored.
    pub fn claims(&self) -> &[Claim] {
        &self.0.claims
    }

    /// What is appended.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.0.messages
    }

    /// What is now known of tool calls, in these messages or earlier ones.
    pub fn tools(&self) -> &[ToolRecord] {
        &self.0.tools
    }

    /// When it was made and in which mode, if it is a write of a run.
    pub fn activity(&self) -> Option<&RunActivity> {
        self.0.activity.as_ref()
    }

    /// What it adds to the usage of its run. A write without messages adds nothing: a store cannot
    /// tell its repetition from another write.
    pub fn usage(&self) -> &[ModelUsage] {
        match self.activity() {
            Some(activity) if !self.messages().is_empty() => activity.usage(),
            Some(_) | None => &[],
        }
    }

    /// Whether it is marked as [sealed](Self::sealed).
    pub fn is_sealed(&self) -> bool {
        self.0.is_sealed
    }

    /// What becomes of the service id, if anything.
    pub fn service_id(&self) -> Option<&ServiceIdChange> {
        self.0.service_id.as_ref()
    }
}

fn with_id(mut message: Arc<Message>, id: MessageId) -> Arc<Message> {
    if message.id != Some(id) {
        Arc::make_mut(&mut message).id = Some(id);
    }
    message
}
