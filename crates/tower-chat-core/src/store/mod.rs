//! The trait of stores, [`HistoryStore`], and the types of its queries and results.
//!
//! [`author`] has the types of which stores are built.

pub mod author;
mod directory;
mod error;
mod handle;
mod history;
mod invocations;
mod journal;
mod keyed_queue;
mod prune;
mod range;
mod retry;
mod revision;
mod rows;
mod sealed;
mod slot;
mod task_queue;
mod ticket;
mod tool_record;
mod under_way;
mod wrapper;
mod write;

use async_trait::async_trait;

use self::author::{OpenRunContent, Slot, Ticket, Write};
pub use self::{
    directory::{
        ConversationPage, ConversationQuery, ConversationState, ConversationSummary, Description,
        DescriptionPatch, DescriptionTooLarge, DirectoryCursor, MessagePage, ModelUsage,
        ParseCursorError, RunActivity, RunSummary, UnreadableConversation, UsageGroup,
        UsageGrouping, UsageQuery, UsageSum, UsageTotals, UtcDay,
    },
    error::{Conflict, StoreError},
    handle::{OutboxFull, StoreHandle},
    history::{Head, History},
    invocations::{
        CallTimes, DayTotals, InvocationQuery, Invocations, ToolTotals, UnreadableInvocation,
    },
    journal::{Lease, OpenRun},
    prune::{Keep, Pruned},
    range::NumbersUsedUp,
    revision::Revision,
    rows::{ConversationRows, DirectoryCounts, Rewrite},
    tool_record::SequencePosition,
    under_way::{ConversationBusy, RunUnderWay},
    wrapper::StoreWrapper,
    write::ServiceIdChange,
};
use crate::{ConversationKey, RunId};

/// Stores the messages of conversations, in order.
///
/// Every store keeps these rules, and `store_contract!` in `tower-chat-testkit` tests all of them:
///
/// - A [`Write`] is atomic: all of it is stored, or nothing. An acknowledged write is durable, to
///   the extent that the store's documentation states.
/// - A write is stored only if the conversation's [`Revision`] is the one that the write expects.
///   The store compares them inside the transaction. If they differ, the write fails with a
///   [`Conflict`].
/// - If a write's [`WriteId`](author::WriteId) is already stored at its position, the write is
///   acknowledged and nothing is stored. A write can therefore be repeated after a failure with an
///   unknown outcome.
/// - A write may have no messages: it can set the service id of a conversation, and creates the
///   conversation if it does not exist. Such a write stores no id, so that its repetition is
///   acknowledged only until the next write.
/// - [`append`](Self::append) is a submission: once it has returned, the store owns the writes,
///   whether or not the ticket is awaited. It may be called where nothing can be awaited, such as
///   in `Drop` on a thread outside of the runtime.
/// - A load that begins after a submission to the same conversation includes that submission.
/// - Messages are returned in the order in which they were appended, whatever the clocks showed.
/// - Stored data that are invalid, such as a number out of its range, cause [`StoreError::Corrupt`]
///   or [`StoreError::Undecodable`]. The store deletes nothing because of them, other conversations
///   are not affected, and [`delete`](Self::delete) still deletes the conversation. A store checks
///   the heads that it reads with [`Head::check_range`], and its writes with
///   [`Write::check_range`].
/// - The rows of the record in a write are stored with the write and deleted with the conversation.
///   Each call has one row, the last that was written. A write that is acknowledged again changes
///   no row. Times are stored with a precision of at least a millisecond.
/// - A [staged](Write::staged) write is as durable as any other, and invisible until its run is
///   committed: to loads, lists and queries of the record. It opens its run. From then on only
///   writes of that run, under its current [`Lease`] or a later attempt, are stored; all others
///   fail with a [`Conflict`] that names the run. Committing makes the whole run visible at one
///   moment. Discarding deletes all of it, except for rows of calls in messages that were visible
///   before.
/// - Messages keep their sequence numbers when earlier messages are [pruned](Self::prune), and no
///   number is used again.
/// - A write that [claims](Write::with_claims) tool calls is stored only if all claims are valid.
/// - The [activity](Write::activity) of a write is in the directory once the write is stored, also
///   of a staged write. The directory therefore includes a conversation whose messages are all
///   staged, with a message count of 0. A write increments the number of runs if its run differs
///   from that of the write before. A discard decrements the number and leaves the usage, because
///   the calls were paid for. A prune leaves both. A copy has the description, the number of runs
///   and the mode of the original, no usage, and its own creation time. Deleting a conversation
///   deletes all of its directory data.
/// - Unreadable data hide no other data: [`rows`](Self::rows) reports each row separately, and a
///   [`rewrite`](Self::rewrite) repairs rows atomically, at the revision that it expects.
/// - A store that outlives its process remembers that it contains sealed data: once a write that is
///   marked as [sealed](Write::sealed) is stored, the store refuses every change without that mark
///   with [`StoreError::Sealed`], except for a [deletion](Self::delete).
/// - No operation crosses a scope.
///
/// Clones of a store are the same store: see [`handle`](Self::handle).
///
/// The future of every async method may be dropped at any await. Unless the method says otherwise,
/// the method then changes nothing.
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
/// // Repeated, the write is acknowledged and stores nothing. Another write that expects it is refused.
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
    /// messages. A conversation that was never written has [`Revision::ABSENT`].
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError>;

    /// Returns the conversation with its messages, without staged ones. For a conversation that was
    /// never written, the history has no messages and its head is at [`Revision::ABSENT`]. The head
    /// in the history need not contain the pending approvals.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a message cannot be decoded.
    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError>;

    /// Returns the conversation's open run with everything that is staged of it; `None` if there is
    /// none.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a part of the run cannot be decoded.
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError>;

    /// Returns up to `limit` conversations of a scope that have an open run, in the byte order of
    /// their ids, beginning with the first id greater than `after`. The runs themselves are not
    /// read, so that a damaged run hides no other. To read one, use [`head`](Self::head) or
    /// [`open_run`](Self::open_run).
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError>;

    /// Waits for a slot in the store's bounded queue. The layers call it before they call the
    /// model, so that a slow store delays callers instead of accumulating unsaved answers.
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`], if the store accepts no more writes.
    async fn reserve(&self) -> Result<Slot, StoreError>;

    /// Returns a slot in the store's queue if one is free, which saves a service call the future of
    /// [`reserve`](Self::reserve). After `None`, the caller calls `reserve`. A store need not
    /// implement this method.
    fn try_reserve(&self) -> Option<Slot> {
        None
    }

    /// Submits writes, in order. The store stops at the first write that fails.
    ///
    /// The returned [`Ticket`] resolves when they are durable. Dropping it cancels nothing.
    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket;

    /// Copies the visible part of a conversation, with its record of tool calls, to a key that has
    /// no conversation, and returns the revision of the copy. The copy has its own incarnation. If
    /// there is nothing to copy, returns [`Revision::ABSENT`] and changes nothing.
    ///
    /// - The service id is not copied, because the service does not know the copy.
    /// - A call that waits for approval waits in the original only. In the copy it was not approved
    ///   ([`ToolRecord::in_copy`](author::ToolRecord::in_copy)).
    /// - The copy of a pruned conversation has the sequence numbers of the original, or begins with
    ///   1.
    /// - The copy has the visible messages of one moment, and becomes visible at a later moment.
    ///   The original may change in between.
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
    /// let copy = ConversationKey::new("alice", "support, another way");
    /// let revision = store.fork(&alice, &copy).await?;
    /// assert_eq!((revision.sequence, store.load(&copy).await?.messages.len()), (3, 3));
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`], if the other key has a conversation; otherwise, if the store cannot
    /// be written.
    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError>;

    /// Deletes the oldest runs of a conversation, with the rows of their calls, and returns how
    /// much it deleted. The deletion is atomic, and erases the data as thoroughly as
    /// [`delete`](Self::delete) does.
    ///
    /// A run is deleted as a whole, and the last run is always kept. A run with a call that waits
    /// for approval or for its result is kept, together with every later run.
    /// [`Pruning`](author::Pruning) decides for a store which runs are deleted. The other messages
    /// keep their numbers. If any run was deleted, the conversation gets a new incarnation: a run
    /// in progress in another process gets a [`Conflict`]. Repeating the call deletes nothing more.
    /// A deleted run that is sent again is a new run.
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::{HistoryStore, Keep}};
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
    /// let pruned = store.prune(&alice, Keep::Messages(1)).await?;
    /// assert_eq!((pruned.runs, pruned.messages), (2, 2));
    /// let history = store.load(&alice).await?;
    /// let left: Vec<_> = history.numbered().map(|(number, message)| (number, message.text())).collect();
    /// assert_eq!(left, [(3, "three".to_owned())]); // the numbers do not change
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::UnderWay`], with nothing deleted, if the conversation has an open run, or is
    /// not [at rest](StoreHandle::at_rest) in this process; [`StoreError::Corrupt`], with nothing
    /// deleted, if a message is missing or a number is out of its range; otherwise, if the store
    /// cannot be written.
    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError>;

    /// Deletes the conversation with everything that belongs to it. Returns whether it existed.
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

    /// Returns up to `limit` conversations of a scope, in the byte order of their ids, beginning
    /// with the first id greater than `after`. Conversations whose messages are all staged are not
    /// included.
    ///
    /// The example lists all conversations of a scope, page by page:
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
    /// let (mut found, mut after) = (Vec::new(), None::<String>);
    /// loop {
    ///     let page = store.list("alice", after.as_deref(), 100).await?;
    ///     let Some(last) = page.last() else { break };
    ///     after = Some(last.id().to_owned());
    ///     found.extend(page);
    /// }
    /// assert_eq!(found, [alice]);
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError>;

    /// Returns the tool calls that match a query, in the order of conversation, message and index.
    /// Unreadable rows are reported beside the readable ones. The store sends one request to its
    /// backend, however many messages a query names, and none for a query that cannot match.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// use tower_chat_core::{
    ///     ConversationKey, Message, ToolCall, ToolStatus,
    ///     store::{HistoryStore, InvocationQuery},
    /// };
    /// # use tower_chat_core::{MemoryStore, MessageId, RunId};
    /// # use tower_chat_core::store::{Revision, SequencePosition, author::{ToolRecord, Write}};
    /// # let store = MemoryStore::new();
    /// # let key = ConversationKey::new("alice", "weather");
    /// # let asks = Message::tool_calls([ToolCall::new("call_1", "weather", r#"{"city": "Paris"}"#)]);
    /// # let row = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "call_1", "weather");
    /// # let id = MessageId { run: RunId::new(), index: 0 };
    /// # let write = Write::new(key.clone(), id, Revision::ABSENT, [asks.into()]).with_tools(vec![row]);
    /// # store.append(store.reserve().await?, vec![write]).await?;
    /// let open = InvocationQuery::in_scope("alice").with_status(ToolStatus::Pending).with_limit(50);
    /// for (conversation, call) in store.invocations(&open).await?.found {
    ///     println!("{conversation}: {} with {}", call.name, call.arguments);
    ///     # assert_eq!((conversation, call.arguments.as_str()), (key.clone(), r#"{"city": "Paris"}"#));
    /// }
    /// # assert_eq!(store.invocations(&open).await?.found.len(), 1);
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError>;

    /// Counts the tool calls that match a query, per tool, in the byte order of their names. The
    /// limit of the query is ignored. The backend counts; arguments and results are not read.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError>;

    /// Returns the directory's summary of a conversation; `None` if the conversation was never
    /// written.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store or the
    /// directory data of the conversation cannot be read.
    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        let _ = key;
        Err(StoreError::Unsupported { operation: "summary" })
    }

    /// Returns a page of the conversations that match a query. The most recently active one is
    /// first. Of two that were active in the same millisecond, the one with the lesser key is
    /// first. Conversations whose messages are all staged are included. A page has the requested
    /// number of conversations if there are enough.
    ///
    /// A conversation that is active between two requests moves to the front, and the next page may
    /// not include it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store cannot be read.
    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        let _ = query;
        Err(StoreError::Unsupported { operation: "conversations" })
    }

    /// Returns the usage of runs, summed up by the grouping of the query, in the order of the
    /// groups. Groups without usage are not included.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store cannot be read.
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        let _ = query;
        Err(StoreError::Unsupported { operation: "usage" })
    }

    /// Returns up to `limit` runs of a conversation, including discarded and pruned ones, in the
    /// descending byte order of their ids, beginning with the first id less than `after`. This is
    /// newest first if the clocks agree.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store cannot be read.
    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        let _ = (key, after, limit);
        Err(StoreError::Unsupported { operation: "runs" })
    }

    /// Returns a page of the conversation, backwards from its end: the last `limit` visible
    /// messages before the sequence number `before`, or the last ones of all. For the next page,
    /// pass [`MessagePage::earlier`] as `before`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store cannot
    /// be read, or a message of the page cannot be decoded. The store reads only messages of the
    /// page.
    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let _ = (key, before, limit);
        Err(StoreError::Unsupported { operation: "messages_before" })
    }

    /// Sets the description of a conversation, if its
    /// [version](ConversationSummary::description_version) is `expected`, which is 0 for a
    /// description that was never set. Returns the new version, which is one higher. The revision
    /// and the last activity of the conversation do not change.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; [`StoreError::NoConversation`], if the
    /// conversation was never written; [`StoreError::DescriptionChanged`], if the description has another
    /// version; [`StoreError::Closed`]; otherwise, if the store cannot be written.
    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let _ = (key, description, expected_version);
        Err(StoreError::Unsupported { operation: "set_description" })
    }

    /// Applies a patch to the current description of a conversation, and returns the result. If
    /// another writer changes the description at the same time, the patch is applied again, to the
    /// new description.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// # use tower_chat_core::{ConversationKey, MemoryStore, Message, MessageId, RunId};
    /// use tower_chat_core::store::{DescriptionPatch, HistoryStore};
    /// # use tower_chat_core::store::{Revision, author::Write};
    /// # let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "support"));
    /// # let id = MessageId { run: RunId::new(), index: 0 };
    /// # let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
    /// # store.append(store.reserve().await?, vec![write]).await.expect("it is stored");
    /// let patch = DescriptionPatch::new().with_title("A question about coats");
    /// let description = store.change_description(&key, &patch).await?;
    /// assert_eq!(description.title(), Some("A question about coats"));
    /// # Ok::<(), tower_chat_core::store::StoreError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_description`](Self::set_description); [`StoreError::DescriptionTooLarge`], if the
    /// result would exceed the maximum size.
    async fn change_description(
        &self,
        key: &ConversationKey,
        patch: &DescriptionPatch,
    ) -> Result<Description, StoreError> {
        const ATTEMPTS: usize = 64;
        let mut attempt = 1;
        loop {
            let Some(summary) = self.summary(key).await? else {
                return Err(StoreError::NoConversation { key: key.clone() });
            };
            let description = patch.apply(&summary.description)?;
            match self.set_description(key, &description, summary.description_version).await {
                Ok(_) => return Ok(description),
                Err(StoreError::DescriptionChanged { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns up to `limit` scopes that have a conversation, in byte order, beginning with the
    /// first one greater than `after`. A scope whose conversations are all staged is included.
    ///
    /// The example lists all scopes of a store, page by page:
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::HistoryStore};
    /// # futures_util::FutureExt::now_or_never(async {
    /// # use tower_chat_core::{MemoryStore, Message, MessageId, RunId, store::{Revision, author::Write}};
    /// # let store = MemoryStore::new();
    /// # for scope in ["bob", "alice"] {
    /// #     let id = MessageId { run: RunId::new(), index: 0 };
    /// #     let key = ConversationKey::new(scope, "support");
    /// #     let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
    /// #     store.append(store.reserve().await?, vec![write]).await?;
    /// # }
    /// let mut scopes: Vec<String> = Vec::new();
    /// loop {
    ///     let page = store.scopes(scopes.last().map(String::as_str), 100).await?;
    ///     if page.is_empty() { break }
    ///     scopes.extend(page);
    /// }
    /// assert_eq!(scopes, ["alice", "bob"]);
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store does not implement it; otherwise, if the store
    /// cannot be read.
    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let _ = (after, limit);
        Err(StoreError::Unsupported { operation: "scopes" })
    }

    /// Returns a conversation row by row, for checks. Unlike [`load`](Self::load), it continues
    /// after unreadable rows. Returns `None` if there is no such conversation. The duration is
    /// proportional to the length of the conversation.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store does not implement it; otherwise, if the store or
    /// the head of the conversation cannot be read.
    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        let _ = key;
        Err(StoreError::Unsupported { operation: "rows" })
    }

    /// Changes rows of a conversation in place and counts in the directory, all of them or none, and
    /// returns the new revision. The conversation gets a new incarnation: a run in progress, in any
    /// process, gets a [`Conflict`] at its next write.
    ///
    /// It is meant for repairs only; every other change of a conversation is an append. If the
    /// future is dropped, the change may or may not take effect.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`], if the conversation is not at the expected revision, or has an
    /// open run, which must be committed or discarded before; [`StoreError::Corrupt`], with nothing
    /// changed, if a message that should change is missing; [`StoreError::Unsupported`], if the
    /// store does not implement it; [`StoreError::Closed`]; otherwise, if the store cannot be
    /// written.
    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let _ = rewrite;
        Err(StoreError::Unsupported { operation: "rewrite" })
    }

    /// Waits until everything submitted so far is durable or has failed, and the tickets are
    /// resolved.
    ///
    /// # Errors
    ///
    /// If the store's writer has ended.
    async fn flush(&self) -> Result<(), StoreError>;

    /// Finishes everything submitted so far, then refuses new writes. Reads are still possible.
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
}
