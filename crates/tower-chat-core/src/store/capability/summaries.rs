//! The capability of summaries that replace the beginning of a conversation.

use async_trait::async_trait;

use super::Capability;
use crate::{
    ConversationKey,
    store::{AddedSummary, HistoryStore, HistorySummary, StoreError},
};

/// Summaries of the beginning of a conversation, which the model receives in place of the messages
/// that they cover. This is a [capability](Capability) of a store.
///
/// - A summary is a row beside the messages. Adding or removing a summary changes neither the
///   messages nor the [revision](crate::store::Revision), so that it causes no conflict with a run
///   in progress. Readers notice the change in the [head](crate::store::Head).
/// - The rows are ordered by [`covers_to`](HistorySummary::covers_to). The last one is in force,
///   and [`Head::summary`](crate::store::Head::summary) names it.
/// - A [rewrite](crate::store::Maintenance::rewrite) of a message deletes every summary that covers
///   the message, because the summary may contain the content that was rewritten.
/// - A [prune](crate::store::Maintenance::prune) deletes a summary if all messages that it covers
///   are pruned, except for the summary in force. The store keeps the summary in force, so that the
///   model still receives a text about the pruned messages.
/// - Staged messages of an open run are never covered.
/// - A [fork](crate::store::Maintenance::fork_at) does not copy summaries. Deleting a conversation
///   deletes its summaries.
/// - A store that contains [sealed](crate::store::author::Write::sealed) data refuses a summary
///   without the mark of the wrapper, but allows the removal of any summary.
#[async_trait]
pub trait Summaries: Send + Sync {
    /// Returns the summaries of a conversation, in the order of the messages that they cover. The
    /// last one is in force. A conversation that does not exist has none.
    ///
    /// # Errors
    ///
    /// If the store cannot be read; [`StoreError::Corrupt`], if a row is damaged.
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError>;

    /// Returns the summary with an id, for example the id in a [head](crate::store::Head::summary);
    /// `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the store cannot be read; [`StoreError::Corrupt`], if the row is damaged.
    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError>;

    /// Adds a summary, which is then in force. `rewrites` is
    /// [`Head::rewrites`](crate::store::Head::rewrites) of the head that was read together with the
    /// covered messages.
    ///
    /// The summary is added only if
    ///
    /// - the message at [`covers_to`](HistorySummary::covers_to) is
    ///   visible and has the id [`last`](HistorySummary::last),
    /// - no message was rewritten since the messages were read, and
    /// - the summary in force covers fewer messages.
    ///
    /// Otherwise nothing changes, and the outcome contains the reason. If a summary with the same
    /// id is already stored, nothing changes, and the outcome is [`Stored`](AddedSummary::Stored).
    ///
    /// ```
    /// use tower_chat_core::{
    ///     ConversationKey,
    ///     store::{AddedSummary, HistoryStore, HistorySummary, Summaries},
    /// };
    /// # futures_util::FutureExt::now_or_never(async {
    /// # use tower_chat_core::{MemoryStore, Message, MessageId, RunId, store::{Revision, author::Write}};
    /// # let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "support"));
    /// # let id = MessageId { run: RunId::new(), index: 0 };
    /// # let messages = ["A coat?", "Yes."].map(|text| Message::user(text).into());
    /// # store.append(store.reserve().await?, vec![Write::new(key.clone(), id, Revision::ABSENT, messages)]).await?;
    /// let history = store.load(&key).await?;
    /// let last = history.message(2).and_then(|message| message.id).ok_or("there is no message 2")?;
    /// let summary = HistorySummary::new(2, last, "Alice looks for a coat.");
    /// let added = store.add_summary(&key, &summary, history.head.rewrites).await?;
    /// assert_eq!(added, AddedSummary::Stored);
    /// assert_eq!(store.head(&key).await?.summary, Some(summary.in_force()));
    ///
    /// assert!(store.remove_summary(&key, summary.id).await?); // undo
    /// assert_eq!(store.head(&key).await?.summary, None);
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError>;

    /// Removes the summary in force if it has this id. Returns whether the summary was removed. The
    /// previous summary, if there is one, is then in force. A summary that is not in force is not
    /// removed.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError>;
}

/// Every operation fails with [`StoreError::MissingCapability`] if the store lacks the capability.
#[async_trait]
impl Summaries for dyn HistoryStore + '_ {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        self.summaries().ok_or(Capability::Summaries)?.history_summaries(key).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        self.summaries().ok_or(Capability::Summaries)?.history_summary(key, id).await
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        self.summaries().ok_or(Capability::Summaries)?.add_summary(key, summary, rewrites).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        self.summaries().ok_or(Capability::Summaries)?.remove_summary(key, id).await
    }
}
