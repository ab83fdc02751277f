//! A write: one atomic append to a conversation.

use std::sync::Arc;

use super::{
    ModelUsage, Parent, Revision, RunActivity,
    author::{Claim, Close, LoadFrom, Staged, ToolRecord},
};
use crate::{ConversationKey, Message, MessageId, RunId};

/// The id of a write, by which a store recognises a repeated write.
///
/// The id of a write is the id of its first message, and is therefore stored with the messages.
pub type WriteId = MessageId;

/// One atomic append to one conversation.
///
/// The first message has the id [`id`](Self::id), and the index in the id of each further message
/// is one higher. Each [`Message::id`] is set when the write is created, so that the caller's
/// messages and the stored ones have the same ids.
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
/// The cost of a clone does not depend on the size of the write.
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
    /// Whether the write is the first of an attempt at its run.
    begins_attempt: bool,
    activity: Option<RunActivity>,
    parent: Option<Parent>,
    load_from: Option<Arc<LoadFrom>>,
    is_sealed: bool,
}

/// The change of a conversation's service id by a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceIdChange {
    /// The service stores the history under this id.
    Set(Arc<str>),
    /// The service no longer stores the history.
    Clear,
}

impl Write {
    /// Creates a write that appends messages after the expected revision. `id` is the id of the
    /// first message; the index in the id of each further message is one higher.
    pub fn new(
        key: ConversationKey,
        id: WriteId,
        expected: Revision,
        messages: impl IntoIterator<Item = Arc<Message>>,
    ) -> Self {
        // The index saturates at its maximum. `check_range` later refuses a write that reaches it.
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
            activity,
            parent: None,
            load_from: None,
            is_sealed: false,
        }))
    }

    /// Marks the write as one of an encrypting wrapper, which seals the data that it stores. A
    /// persistent store records that it contains such a write. From then on the store refuses every
    /// change without the mark ([`StoreError::Sealed`](super::StoreError::Sealed)), except for a
    /// deletion and the removal of a [summary](super::Summaries::remove_summary).
    #[must_use]
    pub fn sealed(mut self) -> Self {
        Arc::make_mut(&mut self.0).is_sealed = true;
        self
    }

    /// Sets the activity: the time of the write, the mode, and the usage that the write adds to its
    /// run. By default the time is the current one, and the usage is the number of tool calls in
    /// the messages.
    #[must_use]
    pub fn with_activity(mut self, activity: RunActivity) -> Self {
        Arc::make_mut(&mut self.0).activity = Some(activity);
        self
    }

    /// Removes the activity: the write belongs to no run and is not counted in the
    /// [directory](super::Directory::conversations). A wrapper uses such a write to store its own
    /// state.
    #[must_use]
    pub fn without_activity(mut self) -> Self {
        Arc::make_mut(&mut self.0).activity = None;
        self
    }

    /// Sets the [parent](Parent) of the conversation, if this write creates the conversation. The
    /// directory then lists the conversation among the branches of the parent. A write to an
    /// existing conversation does not change its parent.
    #[must_use]
    pub fn with_parent(mut self, parent: Option<Parent>) -> Self {
        Arc::make_mut(&mut self.0).parent = parent;
        self
    }

    /// Sets the part of the conversation that the next run needs to load. Without this value, the
    /// write does not change [`Head::load_from`](super::Head::load_from). The value takes effect
    /// with every write that is stored, also with a staged one.
    #[must_use]
    pub fn with_load_from(mut self, from: Option<Arc<LoadFrom>>) -> Self {
        Arc::make_mut(&mut self.0).load_from = from;
        self
    }

    /// Sets the rows of the record of tool calls. Each row replaces the earlier row of its call.
    /// The store ignores a row if the message of its call does not exist after the write.
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<ToolRecord>) -> Self {
        Arc::make_mut(&mut self.0).tools = tools;
        self
    }

    /// Sets the claims. The write is stored only if all of them are valid. A claim is valid if the
    /// row of its call has the status [`PendingApproval`](crate::ToolStatus::PendingApproval) and
    /// the start time in the claim. If the call has no row, or its message is not visible, a claim
    /// without a start time is valid. The new rows of the claimed calls are in
    /// [`tools`](Self::tools).
    #[must_use]
    pub fn with_claims(mut self, claims: Vec<Claim>) -> Self {
        Arc::make_mut(&mut self.0).claims = claims;
        self
    }

    /// Makes this a write of an open run. If no run is open, the write opens its run.
    ///
    /// The messages of the write and the rows of their tool calls are durable, but they become part
    /// of the history only when the run is committed. A row for a call in an already visible
    /// message takes effect immediately.
    #[must_use]
    pub fn staged(mut self, staged: Staged) -> Self {
        Arc::make_mut(&mut self.0).staged = Some(staged);
        self
    }

    /// Makes a staged write the first of an attempt at its run. The write gives the conversation a
    /// new incarnation, because the writes of two attempts can have the same id at the same
    /// position. Without the new incarnation, the store would acknowledge the write of one attempt
    /// as a repetition of the other's.
    #[must_use]
    pub fn beginning_attempt(mut self) -> Self {
        Arc::make_mut(&mut self.0).begins_attempt = true;
        self
    }

    /// Sets a change of the conversation's service id, which takes effect immediately. A staged
    /// write ignores this change; its change is [`Staged::service_id`].
    #[must_use]
    pub fn with_service_id(mut self, change: ServiceIdChange) -> Self {
        Arc::make_mut(&mut self.0).service_id = Some(change);
        self
    }

    /// Returns the conversation.
    pub fn key(&self) -> &ConversationKey {
        &self.0.key
    }

    /// Returns the id of the write.
    pub fn id(&self) -> WriteId {
        self.0.id
    }

    /// Returns the run of the write.
    pub fn run(&self) -> RunId {
        self.0.id.run
    }

    /// Returns the revision that the conversation must have.
    pub fn expected(&self) -> Revision {
        self.0.expected
    }

    /// Returns the revision of the conversation after the write.
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

    /// Returns whether the write is the [first of an attempt](Self::beginning_attempt) at its run.
    pub fn begins_attempt(&self) -> bool {
        self.0.begins_attempt
    }

    /// Returns the properties of a staged write; `None` for any other write.
    pub fn as_staged(&self) -> Option<&Staged> {
        self.0.staged.as_ref()
    }

    /// Returns the end of the run, if this write commits or discards an open run.
    pub fn close(&self) -> Option<Close> {
        self.0.staged.as_ref()?.close
    }

    /// Returns the claims, all of which must be valid for the write to be stored.
    pub fn claims(&self) -> &[Claim] {
        &self.0.claims
    }

    /// Returns the messages to append.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.0.messages
    }

    /// Returns the rows of the record, for tool calls in the write's messages or in earlier ones.
    pub fn tools(&self) -> &[ToolRecord] {
        &self.0.tools
    }

    /// Returns the activity that the write reports; `None` after
    /// [`without_activity`](Self::without_activity).
    pub fn activity(&self) -> Option<&RunActivity> {
        self.0.activity.as_ref()
    }

    /// Returns the parent of the conversation that this write creates.
    pub fn parent(&self) -> Option<&Parent> {
        self.0.parent.as_ref()
    }

    /// Returns the new value of [`Head::load_from`](super::Head::load_from); `None` if the write
    /// does not change the value.
    pub fn load_from(&self) -> Option<&Arc<LoadFrom>> {
        self.0.load_from.as_ref()
    }

    /// Returns the usage that the write adds to its run. A write without messages adds no usage,
    /// because a store cannot distinguish the repetition of such a write from a new write.
    pub fn usage(&self) -> &[ModelUsage] {
        match self.activity() {
            Some(activity) if !self.messages().is_empty() => activity.usage(),
            Some(_) | None => &[],
        }
    }

    /// Returns whether the write is marked as [sealed](Self::sealed).
    pub fn is_sealed(&self) -> bool {
        self.0.is_sealed
    }

    /// Returns the change of the service id, if any.
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
