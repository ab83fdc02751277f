//! The store of histories: one small, object-safe trait, and what a caller asks it for.
//!
//! What goes into a store, and the parts of which stores are made, is in [`author`].

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
    rows::{ConversationRows, Rewrite},
    tool_record::SequencePosition,
    under_way::{ConversationBusy, RunUnderWay},
    wrapper::StoreWrapper,
    write::ServiceIdChange,
};
use crate::{ConversationKey, RunId};

/// Keeps the messages of conversations, in order, for ever.
///
/// What every store promises (`store_contract!` in `tower-chat-testkit` tests it all):
///
/// - a [`Write`] is atomic: all of it is stored, or nothing; what was acknowledged is durable, as
///   far as the store's documentation says;
/// - a write is stored only if the conversation's [`Revision`] is the one it expects, compared
///   inside the transaction; otherwise it is a [`Conflict`];
/// - a write whose [`WriteId`](author::WriteId) is stored already at its position is acknowledged again and stores
///   nothing, so it can be repeated after a failure that left the outcome open;
/// - a write may have no messages: it can set the service id of a conversation, and makes one that
///   did not exist. Having no id in the store, its repeat is acknowledged while nothing came after;
/// - [`append`](Self::append) is a submission: once it has returned, the store owns the writes,
///   whether or not anyone awaits the ticket. It may be called where nothing can be awaited, such
///   as in `Drop` on a thread outside of the runtime;
/// - a load that begins after a submission to the same conversation sees it;
/// - messages come back in the order in which they were appended, whatever the clock said;
/// - what is stored in a conversation and cannot be, such as a number out of its range, is
///   [`StoreError::Corrupt`] or [`StoreError::Undecodable`]: nothing is deleted because of it, other
///   conversations are not affected, and [`delete`](Self::delete) still deletes the conversation. A
///   store checks what it reads with [`Head::check_range`], and what it writes with
///   [`Write::check_range`];
/// - what a write says of tool calls is stored with it, and goes with the conversation. There is
///   one row of a call, the last that was written; a write that is acknowledged again changes none.
///   Times are kept at least to the millisecond;
/// - a [staged](Write::staged) write is as durable as any, and nobody sees it before its run is
///   committed: no load, no list, no question to the record. It opens its run, and from then on
///   only writes of that run, under its present [`Lease`] or a later attempt, are stored; all others
///   are a [`Conflict`] that names it. Committing shows the whole run at one moment; discarding
///   leaves nothing of it, but for rows of calls in messages that were visible before;
/// - messages keep their numbers, whatever is [pruned](Self::prune) before them, and no number is
///   used again;
/// - a write that [claims](Write::with_claims) tool calls is stored only if all claims hold;
/// - what a write tells of [its run](Write::activity) is in the directory once it is stored, of
///   staged writes too: the directory has a conversation of which all is staged, with no messages. A
///   run is counted with a write whose run is not that of the write before it. A discard takes the
///   run off the count, and leaves its usage, which was paid for; so does a prune, which leaves the
///   count as well. A copy has the description, the counts and the mode of the original, no usage, and
///   the time of its own making. Deleting a conversation deletes all of this;
/// - what cannot be read hides nothing else: [`rows`](Self::rows) tells of each row apart, and a
///   [`rewrite`](Self::rewrite) repairs rows at the revision that it expects, at one moment;
/// - a store that outlives its process remembers that it holds sealed data: once a write that is marked as
///   [sealed](Write::sealed) is stored, it refuses every change without that mark, except for a
///   [deletion](Self::delete), with [`StoreError::Sealed`];
/// - nothing crosses a scope.
///
/// Clones of a store's handle are the same store: see [`handle`](Self::handle).
///
/// Every async method may be dropped at any await; it changes nothing then.
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
/// // A write says at which revision it expects the conversation.
/// let head = store.head(&key).await?;
/// assert_eq!(head.revision, Revision::ABSENT);
/// let first = write("Hello.", head.revision);
/// store.append(store.reserve().await?, vec![first.clone()]).await?;
///
/// // Repeated, it is acknowledged and stores nothing. Another one that expects the same is refused.
/// store.append(store.reserve().await?, vec![first]).await?;
/// let late = store.append(store.reserve().await?, vec![write("Hi.", head.revision)]).await;
/// assert!(matches!(late.unwrap_err().source, StoreError::Conflict(_)));
/// assert_eq!(store.load(&key).await?.messages.len(), 1);
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[async_trait]
pub trait HistoryStore: Send + Sync + 'static {
    /// What identifies this store, and holds the writes it could not take yet. A store makes one
    /// when it is opened and shares it among its clones.
    fn handle(&self) -> &StoreHandle;

    /// The conversation's revision, service id, open run and pending approvals, without its
    /// messages. A conversation that was never written has [`Revision::ABSENT`].
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError>;

    /// The whole conversation, without what is staged. A conversation that was never written is no error:
    /// its history has no messages, and its head is at [`Revision::ABSENT`]. The head that comes with a
    /// history need not have the pending approvals.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or holds a message it cannot decode.
    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError>;

    /// The conversation's open run with everything that is staged of it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or holds something of the run that it cannot decode.
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError>;

    /// Up to `limit` conversations of a scope that have an open run, in the byte order of their ids,
    /// from the first id greater than `after` on. The runs themselves are not read, so that a damaged
    /// one hides no other: [`head`](Self::head) and [`open_run`](Self::open_run) return one.
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

    /// Waits for a slot in the store's bounded queue. Done before the model is called, so that a
    /// slow store holds callers back instead of letting unsaved answers pile up.
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`], if the store takes no more writes.
    async fn reserve(&self) -> Result<Slot, StoreError>;

    /// A slot in the store's queue, if one is free: it spares a service call
    /// the future of [`reserve`](Self::reserve), which is asked after a `None`. A store need not
    /// implement it.
    fn try_reserve(&self) -> Option<Slot> {
        None
    }

    /// Submits writes, in order; the store stops at the first that fails.
    ///
    /// The returned [`Ticket`] resolves when they are durable. Dropping it cancels nothing.
    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket;

    /// Copies a conversation as readers see it, with its record of tool calls, to a key under which
    /// there is none, and in an incarnation of its own. Returns the copy's revision;
    /// [`Revision::ABSENT`], with nothing done, if there is nothing to copy. A service id is not
    /// copied: the service knows nothing of the copy. A call that waits for approval waits in the
    /// original alone: in the copy it was not approved
    /// ([`ToolRecord::in_copy`](author::ToolRecord::in_copy)). The copy of a conversation that was pruned is
    /// numbered as that is, or from 1. It has what readers saw at one moment of the call, and is seen
    /// from a later one on: a store need not do both at once, and the original may change between them.
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
    /// [`StoreError::Exists`], if there is a conversation at the other key; otherwise, if the store
    /// cannot be written.
    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError>;

    /// Takes the oldest runs of a conversation away, with what is recorded of their calls, and
    /// says how much went. It is done at one moment, and nothing of it is left anywhere that a
    /// deletion would leave nothing.
    ///
    /// Runs go whole, and the last one stays; so does a run with a call that waits for approval or
    /// for its result, with everything after it. [`Pruning`](author::Pruning) tells a store which go. The others keep
    /// their numbers, and the conversation is in another incarnation if any went: who had a run
    /// under way on it elsewhere gets a [`Conflict`]. A repetition takes nothing away. A run that
    /// is gone and is sent again is a new one.
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
    /// assert_eq!(left, [(3, "three".to_owned())]); // the numbers stay
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::UnderWay`], with nothing done, if the conversation has an open run, or is not
    /// [at rest](StoreHandle::at_rest) in this process; [`StoreError::Corrupt`], with nothing done, if
    /// a message is missing or a number is out of its range; otherwise, if the store cannot be
    /// written.
    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError>;

    /// Deletes the conversation with everything that belongs to it; says whether there was one.
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
    /// assert!(!store.delete(&alice).await?); // it is gone already
    /// assert!(store.load(&alice).await?.messages.is_empty());
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError>;

    /// Up to `limit` conversations of a scope, in the byte order of their ids, from the first id
    /// greater than `after` on. One of which all is staged is not among them.
    ///
    /// All of a scope, page by page:
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

    /// The tool calls that fit a query, in the order of conversation, message and position. A row
    /// that cannot be read is reported beside those that can. However many messages a query
    /// names, it is one question to the backend; one that asks for nothing is none.
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

    /// Counts the tool calls that fit a query, per tool, in the byte order of their names. A
    /// query's limit does not count here. The store counts: it reads no arguments and no results.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError>;

    /// What the directory says of a conversation; `None` if it was never written.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store cannot be read,
    /// or what the directory has of the conversation cannot.
    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        let _ = key;
        Err(StoreError::Unsupported { operation: "summary" })
    }

    /// A page of the conversations that fit a query: the one that was active last comes first, and
    /// of two that were active in the same millisecond the one with the lesser key. Those of which
    /// all is staged are among them. A page has as many as were asked for if there are so many.
    ///
    /// A conversation that is active between two pages moves to the front, and may be missed.
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

    /// What runs have used, added up as a query asks, in the order of the groups. A group of which
    /// nothing was used is left out.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store cannot be read.
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        let _ = query;
        Err(StoreError::Unsupported { operation: "usage" })
    }

    /// Up to `limit` runs that a conversation has had since it was made, discarded and pruned ones
    /// too, in the descending byte order of their ids, which is newest first where the clocks agree,
    /// from the first id less than `after` on.
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

    /// Up to `limit` messages that readers see, the last ones before the message with the number
    /// `before`, or the last ones of all: a page of the conversation, from its end backwards.
    /// [`MessagePage::earlier`] is what to ask for next.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store has no directory; otherwise, if the store cannot be read,
    /// or a message of the page cannot be decoded. Other messages are not read.
    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let _ = (key, before, limit);
        Err(StoreError::Unsupported { operation: "messages_before" })
    }

    /// Sets the description of a conversation, if it has the
    /// [version](ConversationSummary::description_version) that is expected; 0 if it was never set.
    /// Returns the new version, which is one higher. Neither the revision of the conversation
    /// changes, nor when it was last active.
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

    /// Applies a patch to the present description of a conversation, and returns the result. If another
    /// writer changes the description at the same time, the patch is applied again, to the new one.
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
    /// As [`set_description`](Self::set_description); [`StoreError::DescriptionTooLarge`], if it would
    /// be larger than one may be.
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

    /// Up to `limit` scopes that have a conversation, in byte order, from the first greater than `after`
    /// on. One whose conversations are all staged is among them.
    ///
    /// All of a store, scope by scope:
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
    /// [`StoreError::Unsupported`], if the store cannot tell; otherwise, if the store cannot be read.
    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let _ = (after, limit);
        Err(StoreError::Unsupported { operation: "scopes" })
    }

    /// A conversation row by row: unlike [`load`](Self::load), it does not stop at one that cannot be
    /// read. `None`, if there is no such conversation. It is for checks: one that is long takes long.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`], if the store cannot tell; otherwise, if the store cannot be read, or
    /// the head of the conversation cannot.
    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        let _ = key;
        Err(StoreError::Unsupported { operation: "rows" })
    }

    /// Changes rows of a conversation in place, all of them or none, and puts it in another incarnation: a
    /// run that is under way, in whatever process, gets a [`Conflict`] instead of writing on. Returns the
    /// new revision.
    ///
    /// It is for repairs; whatever else happens to a conversation is an append. If the future is dropped, it
    /// is done or not done.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`], if the conversation is not at the expected revision, or has an open run,
    /// which must be committed or discarded before; [`StoreError::Corrupt`], with nothing done, if a message
    /// that is to change is missing; [`StoreError::Unsupported`], if the store cannot do it;
    /// [`StoreError::Closed`]; otherwise, if the store cannot be written.
    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let _ = rewrite;
        Err(StoreError::Unsupported { operation: "rewrite" })
    }

    /// Waits until everything submitted so far is durable or has failed, and its tickets say so.
    ///
    /// # Errors
    ///
    /// If the store's writer is gone.
    async fn flush(&self) -> Result<(), StoreError>;

    /// Finishes everything submitted so far, then refuses new writes. Reading goes on.
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
    /// If the store's writer is gone, or what it has acknowledged cannot be made durable.
    async fn close(&self) -> Result<(), StoreError>;
}
