//! The capability of maintenance.

use async_trait::async_trait;

use super::Capability;
use crate::{
    ConversationKey,
    store::{ConversationRows, Fork, HistoryStore, Keep, Pruned, Revision, Rewrite, StoreError},
};

/// Maintenance of conversations: copies, pruning, checks and repairs. This is a
/// [capability](Capability) of a store.
///
/// - Messages keep their sequence numbers when earlier messages are [pruned](Self::prune), and the
///   sequence number of a pruned message is not used again.
/// - Unreadable data do not hide other data: [`rows`](Self::rows) reports each row separately, and
///   a [`rewrite`](Self::rewrite) repairs rows in one transaction, if the conversation is at the
///   expected revision.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// Copies the turns of a conversation that end before the message `before`, with their record
    /// of tool calls, to a key that has no conversation. If `before` is `None`, copies all visible
    /// messages. The copy is a branch: in the directory, its
    /// [parent](crate::store::ConversationSummary::parent) is the original, with the position at
    /// which the copy ends. If the original does not exist or has no visible data, returns
    /// [`Fork::ABSENT`] and changes nothing.
    ///
    /// - A turn consists of the messages of a run, and of the later runs that answer calls of this
    ///   run with a result or an approval. A copy ends between two turns. If `before` is a message
    ///   in the middle of a turn, the copy ends before this turn: [`Fork::position`] is the last
    ///   message that was copied. No run is divided, and no call is copied without its result.
    ///   Stores compute the end of the copy with [`Forking`](crate::store::author::Forking).
    /// - If no turn ends before the message, the copy has no messages.
    /// - The copy has its own incarnation. The service id is not copied, because the
    ///   conversation at the service belongs to the original. Neither staged messages nor
    ///   [summaries](crate::store::Summaries) are copied.
    /// - A call that waits for approval waits only in the original. In the copy, the call is
    ///   rejected ([`ToolRecord::in_copy`](crate::store::author::ToolRecord::in_copy)).
    /// - The messages in the copy of a pruned conversation are numbered as in the original, or from
    ///   1, depending on the store.
    /// - The copy contains the messages that were visible in the original at one moment. The
    ///   original may change before the copy becomes visible.
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::{HistoryStore, Maintenance}};
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
    /// // The branch has the turns before message 3.
    /// let branch = ConversationKey::new("alice", "support, another way");
    /// let fork = store.fork_at(&alice, Some(3), &branch).await?;
    /// assert_eq!((fork.position, store.load(&branch).await?.messages.len()), (2, 2));
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`], if the other key has a conversation; otherwise, if the store cannot
    /// be written.
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError>;

    /// Deletes the oldest runs of a conversation, with the rows of their tool calls, and returns
    /// the number of deleted runs and messages. The deletion is atomic, and erases the data as
    /// thoroughly as [`delete`](crate::store::HistoryStore::delete) does.
    ///
    /// A store deletes whole runs, and never the last one. If a call of a run waits for approval or
    /// for its result, the store deletes neither this run nor any later run. Stores decide with
    /// [`Pruning`](crate::store::author::Pruning) which runs to delete. The sequence numbers of the
    /// remaining messages do not change. If any run was deleted, the conversation gets a new
    /// [incarnation](crate::store::Revision::incarnation). Therefore the next write of a run in
    /// progress in another process fails with a [`Conflict`](crate::store::Conflict). A second
    /// prune with the same arguments has no effect. If the request of a deleted run is sent again,
    /// the store does not recognise the run, and the request starts a new one.
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::{HistoryStore, Keep, Maintenance}};
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
    /// - [`StoreError::UnderWay`], with nothing deleted, if the conversation has an open run, or is
    ///   not [at rest](crate::store::StoreHandle::at_rest) in this process.
    /// - [`StoreError::Corrupt`], with nothing deleted, if a message is missing or a number is out
    ///   of its range.
    /// - Another error, if the store cannot be written.
    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError>;

    /// Returns up to `limit` scopes that have a conversation, in byte order, beginning with the
    /// first scope greater than `after`. A scope is included even if all messages of its
    /// conversations are staged.
    ///
    /// The example lists all scopes of a store, page by page:
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::{HistoryStore, Maintenance}};
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
    /// If the store cannot be read.
    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Returns a conversation row by row, for checks. Unlike [`load`](HistoryStore::load), this
    /// method continues after unreadable rows. Returns `None` if the conversation does not exist.
    /// The cost is proportional to the length of the conversation.
    ///
    /// # Errors
    ///
    /// If the store, or the head of the conversation, cannot be read.
    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError>;

    /// Replaces rows of a conversation, and its counts in the directory, in one transaction.
    /// Returns the new revision. The rewrite gives the conversation a new incarnation. Therefore
    /// the next write of a run in progress, in any process, fails with a
    /// [`Conflict`](crate::store::Conflict).
    ///
    /// This operation is meant for repairs only; every other change of a conversation is an append.
    /// If the future is dropped, the change may or may not take effect.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Conflict`], if the conversation is not at the expected revision, or has an
    ///   open run, which must be committed or discarded first.
    /// - [`StoreError::Corrupt`], with nothing changed, if a message that should change is missing.
    /// - [`StoreError::Closed`], if the store is closed.
    /// - Another error, if the store cannot be written.
    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError>;
}

/// Every operation fails with [`StoreError::MissingCapability`] if the store lacks the capability.
#[async_trait]
impl Maintenance for dyn HistoryStore + '_ {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        self.maintenance().ok_or(Capability::Maintenance)?.fork_at(from, before, to).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.maintenance().ok_or(Capability::Maintenance)?.prune(key, keep).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.maintenance().ok_or(Capability::Maintenance)?.scopes(after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.maintenance().ok_or(Capability::Maintenance)?.rows(key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        self.maintenance().ok_or(Capability::Maintenance)?.rewrite(rewrite).await
    }
}
