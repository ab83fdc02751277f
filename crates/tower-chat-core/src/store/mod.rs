//! The trait of stores, [`HistoryStore`], and the types of its queries and results.
//!
//! [`author`] has further types, for the authors of stores.

pub mod author;
mod capability;
mod decide;
mod directory;
mod error;
mod fork;
mod handle;
mod history;
mod history_summary;
mod invocations;
mod journal;
mod keyed_queue;
mod load_from;
mod prune;
mod range;
mod retry;
mod revision;
mod rows;
mod sealed;
mod slot;
mod task_queue;
mod ticket;
mod tool_columns;
mod tool_record;
mod under_way;
mod wrapper;
mod write;

use async_trait::async_trait;

use self::author::{LoadFrom, Slot, Ticket, Write};
pub use self::{
    capability::{Capability, Directory, Journal, Maintenance, Summaries, ToolCallQueries},
    directory::{
        ConversationPage, ConversationQuery, ConversationState, ConversationSummary, Description,
        DescriptionPatch, DescriptionTooLarge, DirectoryCursor, MessagePage, ModelUsage, Parent,
        ParseCursorError, RunActivity, RunSummary, UnreadableConversation, UsageGroup,
        UsageGrouping, UsageQuery, UsageSum, UsageTotals, UtcDay,
    },
    error::{Conflict, StoreError},
    fork::Fork,
    handle::{OutboxFull, StoreHandle},
    history::{Head, History},
    history_summary::{AddedSummary, HistorySummary, SummaryInForce},
    invocations::{
        CallSelection, CallTimes, DayTotals, InvocationQuery, Invocations, ToolTotals,
        UnreadableInvocation,
    },
    journal::{Lease, LeaseEnd, OpenRun},
    prune::{Keep, Pruned},
    range::NumbersUsedUp,
    revision::Revision,
    rows::{ConversationRows, DirectoryCounts, Rewrite},
    tool_record::SequencePosition,
    under_way::{ConversationBusy, RunUnderWay},
    write::ServiceIdChange,
};
use crate::ConversationKey;

/// Stores the messages of conversations, in order.
///
/// Every store follows these rules, and `store_contract!` in `tower-chat-testkit` tests all of
/// them:
///
/// - A [`Write`] is atomic: either all of it is stored, or nothing of it. An acknowledged write is
///   durable, to the extent that the store's documentation states.
/// - A write is stored only if the conversation's [`Revision`] is the one that the write expects.
///   The store compares the two revisions inside the transaction of the write. If the two revisions
///   differ, the write fails with a [`Conflict`].
/// - If a write's [`WriteId`](author::WriteId) is already stored at its position, the write is
///   acknowledged and nothing is stored. A write can therefore be repeated after a failure with an
///   unknown outcome.
/// - A write may have no messages, for example if it only sets the service id of a conversation. If
///   the conversation does not exist, such a write creates it. Because no message id is stored with
///   such a write, the store recognises its repetition only until the next write.
/// - [`append`](Self::append) is a submission: once it has returned, the store owns the writes,
///   whether or not the ticket is awaited. `append` may be called where nothing can be awaited,
///   such as in `Drop` on a thread outside of the runtime.
/// - A load that begins after a submission to the same conversation includes that submission.
/// - Messages are returned in the order in which they were appended, regardless of the clocks.
/// - Stored data that are invalid, such as a number out of its range, cause [`StoreError::Corrupt`]
///   or [`StoreError::Undecodable`]. The store deletes no data because of the damage, other
///   conversations are not affected, and [`delete`](Self::delete) still deletes the conversation.
///   [`Head::check_range`] checks each head that a store reads, and [`Write::check_range`] checks
///   each write.
/// - A write may contain rows of the record of tool calls, one for each call. The store stores
///   these rows with the write, and deletes the rows with the conversation. A later row of the same
///   call replaces the earlier one. A write that is acknowledged again changes no row. Times are
///   stored with a precision of at least a millisecond.
/// - With the capability [`Journal`], a write may be [staged](Write::staged). A staged write is as
///   durable as any other write. However, loads, lists and queries of the record do not return its
///   messages and their rows until its run is committed. The first staged write of a run opens the
///   run. While the run is open, the store accepts only writes of that run, from the attempt
///   (execution of the run) that has the current [`Lease`], or from a later attempt. All other
///   writes fail with a [`Conflict`] that names the run. Committing makes the whole run visible at
///   one moment. Discarding deletes the whole run, except for rows of calls in messages that were
///   visible before the run. A store without the capability refuses a staged write with
///   [`StoreError::MissingCapability`].
/// - A write that [claims](Write::with_claims) tool calls is stored only if all claims are valid.
/// - An encrypting wrapper marks its writes as [sealed](Write::sealed). Once a persistent store has
///   stored such a write, the store refuses every change without this mark
///   ([`StoreError::Sealed`]), except for a [deletion](Self::delete) and the removal of a
///   [summary](Summaries::remove_summary).
/// - No operation crosses a scope.
///
/// The methods of this trait are those that every mode of persistence uses. A store may have
/// further [capabilities](Capability): it implements their traits and returns itself from
/// [`journal`](Self::journal), [`directory`](Self::directory), [`tool_calls`](Self::tool_calls),
/// [`maintenance`](Self::maintenance) and [`summaries`](Self::summaries).
///
/// Clones of a store are the same store: see [`handle`](Self::handle).
///
/// The future of every async method may be dropped at any await. A method that only reads or waits
/// then has no effect. If the future of a change is dropped, such as that of
/// [`delete`](Self::delete), the change may or may not take effect.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat_core::{
///     ConversationKey, MemoryStore, Message, MessageId, RunId,
///     store::{HistoryStore, Revision, StoreError, author::Write},
/// };
///
/// let store = MemoryStore::new();
/// let key = ConversationKey::new("alice", "support");
/// let write = |text: &str, expected| {
///     let first = MessageId { run: RunId::new(), index: 0 };
///     Write::new(key.clone(), first, expected, [Message::user(text).into()])
/// };
///
/// // A write contains the revision at which it expects the conversation.
/// let head = store.head(&key).await?;
/// assert_eq!(head.revision, Revision::ABSENT);
/// let first = write("Hello.", head.revision);
/// store.append(store.reserve().await?, vec![first.clone()]).await?;
///
/// // The store acknowledges the repeated write, and stores nothing. It refuses another write here.
/// store.append(store.reserve().await?, vec![first]).await?;
/// let late = store.append(store.reserve().await?, vec![write("Hi.", head.revision)]).await;
/// assert!(matches!(late.unwrap_err().source, StoreError::Conflict(_)));
/// assert_eq!(store.load(&key).await?.messages.len(), 1);
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[async_trait]
pub trait HistoryStore: Send + Sync + 'static {
    /// Returns the handle, which identifies this store and contains its outbox. A store creates the
    /// handle when it is opened and shares it among its clones.
    fn handle(&self) -> &StoreHandle;

    /// Returns the conversation's revision, service id, open run and pending approvals, without its
    /// messages. A conversation that does not exist has [`Revision::ABSENT`].
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError>;

    /// Returns the conversation with its visible messages. Staged messages are not included. For a
    /// conversation that does not exist, the history has no messages and its head is at
    /// [`Revision::ABSENT`]. The head in the history need not contain the pending approvals.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a message cannot be decoded.
    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError>;

    /// Returns the conversation like [`load`](Self::load), but without the messages that `from`
    /// leaves out. [`History::skipped`] is then [`LoadFrom::after`], and [`History::leading`]
    /// contains the first [`LoadFrom::leading`] messages, as far as they were not pruned.
    ///
    /// If [`Head::load_from`] is no longer equal to `from`, because the conversation has changed,
    /// all messages are returned. A store may always return all messages, as the default
    /// implementation does.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a message cannot be decoded.
    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let _ = from;
        self.load(key).await
    }

    /// Returns the record of the selected tool calls of a conversation, in the order of message and
    /// index. Unreadable rows are returned separately. The store sends one request to its backend,
    /// regardless of the number of selected messages. If no call can match, the store sends no
    /// request.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError>;

    /// Waits for a slot in the store's bounded queue. The layers call this method before they call
    /// the model. A slow store therefore delays callers, instead of accumulating unsaved answers.
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`], if the store accepts no more writes.
    async fn reserve(&self) -> Result<Slot, StoreError>;

    /// Returns a slot in the store's queue if one is free, without waiting. A caller that first
    /// calls this method, and calls [`reserve`](Self::reserve) only if the result is `None`,
    /// usually saves the allocation of a future. A store need not implement this method: the
    /// default returns `None`.
    fn try_reserve(&self) -> Option<Slot> {
        None
    }

    /// Submits writes, in order. The store stops at the first write that fails.
    ///
    /// The returned [`Ticket`] resolves when all writes are durable, or one of them has failed.
    /// Dropping the ticket does not cancel the writes.
    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket;

    /// Deletes the conversation with everything that belongs to it. Returns whether the
    /// conversation existed.
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::HistoryStore};
    /// # futures_util::FutureExt::now_or_never(async {
    /// # use tower_chat_core::{MemoryStore, Message, MessageId, RunId, store::{Revision, author::Write}};
    /// # let store = MemoryStore::new();
    /// # let (alice, mut expected) = (ConversationKey::new("alice", "support"), Revision::ABSENT);
    /// # for text in ["one", "two", "three"] {
    /// #     let id = MessageId { run: RunId::new(), index: 0 };
    /// #     let write = Write::new(alice.clone(), id, expected, [Message::user(text).into()]);
    /// #     expected = write.result();
    /// #     store.append(store.reserve().await?, vec![write]).await?;
    /// # }
    /// assert!(store.delete(&alice).await?);
    /// assert!(!store.delete(&alice).await?); // it no longer exists
    /// assert!(store.load(&alice).await?.messages.is_empty());
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError>;

    /// Waits until every earlier submission is durable or has failed, and until its ticket has
    /// resolved.
    ///
    /// # Errors
    ///
    /// If the store's writer has ended.
    async fn flush(&self) -> Result<(), StoreError>;

    /// Closes the store for writes: refuses new submissions, and waits until every earlier
    /// submission is durable or has failed. Reads are still possible.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// use tower_chat_core::{ConversationKey, MemoryStore, store::{HistoryStore, StoreError}};
    ///
    /// let store = MemoryStore::new();
    /// store.close().await?; // before the process ends
    /// assert!(matches!(store.reserve().await, Err(StoreError::Closed)));
    /// assert!(store.load(&ConversationKey::new("alice", "chat")).await.is_ok());
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the store's writer has ended, or acknowledged writes cannot be made durable.
    async fn close(&self) -> Result<(), StoreError>;

    /// Returns the capability of open runs, which journaled mode requires; `None` if the store
    /// lacks it.
    fn journal(&self) -> Option<&dyn Journal> {
        None
    }

    /// Returns the capability of lists, summaries, descriptions, usage, runs and pages; `None` if
    /// the store lacks it.
    fn directory(&self) -> Option<&dyn Directory> {
        None
    }

    /// Returns the capability of queries of tool calls in a scope; `None` if the store lacks it.
    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        None
    }

    /// Returns the capability of copies, pruning, scopes, checks and repairs; `None` if the store
    /// lacks it.
    fn maintenance(&self) -> Option<&dyn Maintenance> {
        None
    }

    /// Returns the capability of summaries that replace the beginning of a conversation; `None` if
    /// the store lacks it.
    fn summaries(&self) -> Option<&dyn Summaries> {
        None
    }
}
