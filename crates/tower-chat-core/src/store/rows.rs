//! Types for checks and repairs, which read and change a conversation row by row. Runs do not use
//! these types.

use std::sync::Arc;

use super::{Conflict, Head, Revision, SequencePosition, StoreError, author::ToolRecord};
use crate::{ConversationKey, Message, RunId, format::FormatError};

/// The rows of a conversation, including unreadable ones.
///
/// Staged rows of an open run are not included: they are checked when the run is read, and deleted
/// if the run is discarded.
#[derive(Debug)]
#[non_exhaustive]
pub struct ConversationRows {
    /// The head, whose revision a [`Rewrite`] must expect. A store may leave the pending approvals
    /// empty.
    pub head: Head,
    /// The visible messages, in order, with their sequence numbers. A gap in the numbers, other
    /// than that of the [pruned](Head::pruned) messages, means that a message is missing.
    pub messages: Vec<(u64, Result<Arc<Message>, FormatError>)>,
    /// The record of tool calls, in the order of the calls. For an unreadable row, the error
    /// message states the reason.
    pub tools: Vec<(SequencePosition, Result<ToolRecord, String>)>,
}

impl ConversationRows {
    /// Creates the rows of a conversation.
    pub fn new(
        head: Head,
        messages: Vec<(u64, Result<Arc<Message>, FormatError>)>,
        tools: Vec<(SequencePosition, Result<ToolRecord, String>)>,
    ) -> Self {
        Self { head, messages, tools }
    }
}

/// A change of rows of one conversation. The change neither adds messages nor changes sequence
/// numbers or message ids.
///
/// The example removes a word from the stored messages:
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// # use tower_chat_core::{MemoryStore, MessageId, RunId, store::{Revision, author::Write}};
/// use tower_chat_core::{
///     ConversationKey, Message, Part,
///     store::{HistoryStore, Maintenance, Rewrite},
/// };
///
/// # let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "support"));
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("a secret").into()]);
/// # store.append(store.reserve().await?, vec![write]).await?;
/// let rows = store.rows(&key).await?.ok_or("there is no such conversation")?;
/// let mut rewrite = Rewrite::new(key.clone(), rows.head.revision);
/// for (number, message) in &rows.messages {
///     let Ok(message) = message else { continue }; // damaged: not changed
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
    /// The revision that the conversation must have.
    pub expected: Revision,
    /// The new contents of messages, by sequence number. The messages keep their stored ids; the
    /// ids in these values are ignored.
    pub messages: Vec<(u64, Message)>,
    /// The new rows of the record of tool calls. Each row replaces the earlier row of its call.
    /// Rows for messages that do not exist are ignored.
    pub tools: Vec<ToolRecord>,
    /// The rows of the record of tool calls to delete.
    pub removed_tools: Vec<SequencePosition>,
    /// The new counts in the directory. `None` changes no counts.
    pub counts: Option<DirectoryCounts>,
    /// Whether an encrypting wrapper makes the rewrite, as
    /// [`Write::sealed`](super::author::Write::sealed) marks a write.
    pub is_sealed: bool,
}

/// The counts that a [`Rewrite`] stores in the directory.
///
/// The rewrite does not change tokens and costs, because they cannot be computed from messages.
/// Only a stored number of tokens or costs that is negative or not a number becomes 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectoryCounts {
    /// The number of runs of the conversation.
    pub runs: u64,
    /// The number of tool calls for each run whose count changes. A run that is not in the
    /// directory is ignored.
    pub tool_calls: Vec<(RunId, u64)>,
}

impl DirectoryCounts {
    /// Creates counts of runs, without tool calls.
    pub fn new(runs: u64) -> Self {
        Self { runs, tool_calls: Vec::new() }
    }
}

impl Rewrite {
    /// Creates a rewrite without changes.
    pub fn new(key: ConversationKey, expected: Revision) -> Self {
        let (messages, tools, removed_tools) = (Vec::new(), Vec::new(), Vec::new());
        Self { key, expected, messages, tools, removed_tools, counts: None, is_sealed: false }
    }

    /// Returns whether the rewrite changes nothing.
    pub fn is_empty(&self) -> bool {
        let Self { messages, tools, removed_tools, counts, .. } = self;
        messages.is_empty() && tools.is_empty() && removed_tools.is_empty() && counts.is_none()
    }

    /// Returns the revision of the conversation after the rewrite. A store calls this method with
    /// the current head.
    ///
    /// # Errors
    ///
    /// A conflict, if the conversation is not at the expected revision, does not exist, or has an
    /// open run.
    pub fn check(&self, found: &Head) -> Result<Revision, StoreError> {
        let is_there = found.revision != Revision::ABSENT;
        if is_there && found.revision == self.expected && found.open_run.is_none() {
            return Ok(found.revision.rewritten());
        }
        let open = found.open_run.as_ref().map(|open| open.run);
        Err(self.conflict(found.revision, open))
    }

    /// Returns the sequence number of the first message that the rewrite changes; `None` if the
    /// rewrite changes no message. If there is such a message, a store with the capability
    /// [`Summaries`](super::Summaries) increments [`Head::rewrites`], and deletes the summaries
    /// that cover the message.
    pub fn first_message(&self) -> Option<u64> {
        self.messages.iter().map(|(sequence, _)| *sequence).min()
    }

    /// Creates the error for a rewrite that is refused because the conversation is at the revision
    /// `found`, or because a run is open. Stores call this method.
    pub fn conflict(&self, found: Revision, open_run: Option<RunId>) -> StoreError {
        let conflict = Conflict::new(self.key.clone(), self.expected, found);
        Box::new(conflict.with_open_run(open_run)).into()
    }

    /// Iterates over the new rows whose messages exist. A store calls this method with the current
    /// head.
    pub fn tools_of<'a>(&'a self, head: &Head) -> impl Iterator<Item = &'a ToolRecord> {
        let first = head.pruned.saturating_add(1);
        let held = first..=head.revision.sequence;
        self.tools.iter().filter(move |row| held.contains(&row.call.sequence))
    }

    /// Creates the error for a message that the rewrite changes and that does not exist. Stores
    /// call this method.
    pub fn missing(&self, sequence: u64) -> StoreError {
        let reason = format!(
            "message {sequence} of conversation {} is missing: restore it from a backup",
            self.key
        );
        StoreError::Corrupt { reason }
    }
}
