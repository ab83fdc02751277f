//! A conversation row by row, for checks and repairs, never for runs.

use std::sync::Arc;

use super::{Conflict, Head, Revision, SequencePosition, StoreError, author::ToolRecord};
use crate::{ConversationKey, Message, format::FormatError};

/// A conversation as its rows stand, those that cannot be read too.
///
/// What an open run has staged is not among the rows: it is checked when it is read, and goes if the
/// run is discarded.
#[derive(Debug)]
#[non_exhaustive]
pub struct ConversationRows {
    /// The head, whose revision a [`Rewrite`] must expect. It need not have the pending approvals.
    pub head: Head,
    /// The messages that readers see, in order, with their numbers. A number that is left out, after
    /// those that were [pruned](Head::pruned), is a message that is missing.
    pub messages: Vec<(u64, Result<Arc<Message>, FormatError>)>,
    /// The record of tool calls, in the order of the calls; an error says what is wrong with the row.
    pub tools: Vec<(SequencePosition, Result<ToolRecord, String>)>,
}

impl ConversationRows {
    /// The rows of a conversation.
    pub fn new(
        head: Head,
        messages: Vec<(u64, Result<Arc<Message>, FormatError>)>,
        tools: Vec<(SequencePosition, Result<ToolRecord, String>)>,
    ) -> Self {
        Self { head, messages, tools }
    }
}

/// A change of rows of one conversation. No message is added, and none changes its number or its id.
///
/// A word that must not stay in a stored message:
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// # use tower_chat_core::{MemoryStore, MessageId, RunId, store::{Revision, author::Write}};
/// use tower_chat_core::{
///     ConversationKey, Message, Part,
///     store::{HistoryStore, Rewrite},
/// };
///
/// # let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "support"));
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("a secret").into()]);
/// # store.append(store.reserve().await?, vec![write]).await?;
/// let rows = store.rows(&key).await?.ok_or("there is no such conversation")?;
/// let mut rewrite = Rewrite::new(key.clone(), rows.head.revision);
/// for (number, message) in &rows.messages {
///     let Ok(message) = message else { continue }; // damaged: left as it is
///     if message.text().contains("secret") {
///         let mut other = Message::clone(message);
///         other.parts = vec![Part::text("[removed]")];
///         rewrite.messages.push((*number, other));
///     }
/// }
/// store.rewrite(rewrite).await?;
/// assert_eq!(store.load(&key).await?.messages.get(0).map(|it| it.text()), Some("[removed]".into()));
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rewrite {
    /// The conversation.
    pub key: ConversationKey,
    /// The revision it must have.
    pub expected: Revision,
    /// Other contents of messages, by their numbers. The ids stay, whatever ids are named here.
    pub messages: Vec<(u64, Message)>,
    /// Rows of the record of tool calls, each replacing the row of its call. Those of messages that are
    /// not there are left out.
    pub tools: Vec<ToolRecord>,
    /// Rows of the record of tool calls that go.
    pub removed_tools: Vec<SequencePosition>,
    /// Whether a wrapper that seals what it stores has made it, as of a
    /// [`Write`](super::author::Write::sealed).
    pub is_sealed: bool,
}

impl Rewrite {
    /// A rewrite that changes nothing yet.
    pub fn new(key: ConversationKey, expected: Revision) -> Self {
        let (messages, tools, removed_tools) = (Vec::new(), Vec::new(), Vec::new());
        Self { key, expected, messages, tools, removed_tools, is_sealed: false }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.tools.is_empty() && self.removed_tools.is_empty()
    }

    /// For a store, which knows the head: the revision that the conversation has once it is rewritten.
    ///
    /// # Errors
    ///
    /// A conflict, if the conversation is not at the expected revision, was never written, or has an open
    /// run.
    pub fn check(&self, found: &Head) -> Result<Revision, StoreError> {
        let is_there = found.revision != Revision::ABSENT;
        if is_there && found.revision == self.expected && found.open_run.is_none() {
            return Ok(found.revision.rewritten());
        }
        let open = found.open_run.as_ref().map(|open| open.run);
        Err(self.conflict(found.revision, open))
    }

    /// For a store: the conversation is at another revision, or this run is open.
    pub fn conflict(&self, found: Revision, open_run: Option<crate::RunId>) -> StoreError {
        let conflict = Conflict::new(self.key.clone(), self.expected, found);
        Box::new(conflict.with_open_run(open_run)).into()
    }

    /// For a store, which knows the head: the rows of the record of messages that are there.
    pub fn tools_of<'a>(&'a self, head: &Head) -> impl Iterator<Item = &'a ToolRecord> {
        let first = head.pruned.saturating_add(1);
        let held = first..=head.revision.sequence;
        self.tools.iter().filter(move |row| held.contains(&row.call.sequence))
    }

    /// For a store: there is no message of this number.
    pub fn missing(&self, sequence: u64) -> StoreError {
        let reason = format!("message {sequence} of conversation {} is missing", self.key);
        StoreError::Corrupt { reason }
    }
}
