//! The capability of the directory of conversations.

use async_trait::async_trait;

use super::Capability;
use crate::{
    ConversationKey, RunId,
    store::{
        ConversationPage, ConversationQuery, ConversationSummary, Description, DescriptionPatch,
        HistoryStore, MessagePage, RunSummary, StoreError, UsageQuery, UsageTotals,
    },
};

/// The directory of conversations, which is a [capability](Capability) of a store. The directory
/// has lists, summaries, descriptions, usage, runs, and the messages of a conversation page by
/// page.
///
/// - As soon as a write is stored, its [activity](crate::store::author::Write::activity) (time,
///   mode and usage) is in the directory, even if the write is staged.
/// - The directory includes a conversation whose messages are all staged, with a message count of
///   0.
/// - A write increments the number of runs if the run of the write differs from that of the
///   previous write.
/// - A discard restores the number of runs from before the open run began. A discard does not
///   change the usage, because the provider charges for the calls of a discarded run too.
/// - A prune changes neither the number of runs nor the usage.
/// - A copy has the description and the mode of the original, and the number of the runs that were
///   copied. The copy has no usage, its own creation time, and the original as its
///   [parent](ConversationSummary::parent).
/// - Deleting a conversation deletes all of its directory data. The branches of the conversation
///   keep their parent.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Returns up to `limit` conversations of a scope, in the byte order of their ids, beginning
    /// with the first id greater than `after`. Conversations whose messages are all staged are not
    /// included.
    ///
    /// The example lists all conversations of a scope, page by page:
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::{HistoryStore, Directory}};
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

    /// Returns the directory's summary of a conversation; `None` if the conversation does not
    /// exist.
    ///
    /// # Errors
    ///
    /// If the store, or the directory data of the conversation, cannot be read.
    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError>;

    /// Returns a page of the conversations that match a query. The most recently active
    /// conversation is first. If two conversations were last active in the same millisecond, the
    /// conversation with the lesser key is first. Conversations whose messages are all staged are
    /// included. A page has fewer conversations than requested only if no further conversations
    /// match.
    ///
    /// If a conversation is active between the requests for two pages, it moves to the front, and
    /// the second page may not include it.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError>;

    /// Returns the usage of runs, with one sum for each group of the query, in the order of the
    /// groups. Groups without usage are not included.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError>;

    /// Returns up to `limit` runs of a conversation, including discarded and pruned ones, in the
    /// descending byte order of their ids, beginning with the first id less than `after`. Because a
    /// run id begins with its creation time, the newest run is usually first.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError>;

    /// Returns a page of the messages of a conversation: the last `limit` visible messages before
    /// the sequence number `before`. A caller that requests page after page reads the conversation
    /// backwards from its end. If `before` is `None`, returns the last messages of the
    /// conversation. For the next page, pass [`MessagePage::earlier`] as `before`.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a message of the page cannot be decoded. Damage in other
    /// messages causes no error.
    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError>;

    /// Sets the description of a conversation, if the
    /// [version](ConversationSummary::description_version) of the current description is
    /// `expected_version`. A description that was never set has version 0. Returns the new version,
    /// which is one higher. The revision and the last activity of the conversation do not change.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoConversation`], if the conversation does not exist;
    /// [`StoreError::DescriptionChanged`], if the description has another version;
    /// [`StoreError::Closed`], if the store is closed; otherwise, if the store cannot be written.
    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError>;

    /// Applies a patch to the current description of a conversation, and returns the result. If
    /// another writer changes the description at the same time, the patch is applied again, to the
    /// new description, up to 64 times in total.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// # use tower_chat_core::{ConversationKey, MemoryStore, Message, MessageId, RunId};
    /// use tower_chat_core::store::{DescriptionPatch, Directory, HistoryStore};
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
    /// The errors of [`set_description`](Self::set_description);
    /// [`StoreError::DescriptionTooLarge`], if the result would exceed the maximum size.
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
}

/// Every operation fails with [`StoreError::MissingCapability`] if the store lacks the capability.
#[async_trait]
impl Directory for dyn HistoryStore + '_ {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.directory().ok_or(Capability::Directory)?.list(scope, after, limit).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.directory().ok_or(Capability::Directory)?.summary(key).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        self.directory().ok_or(Capability::Directory)?.conversations(query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        self.directory().ok_or(Capability::Directory)?.usage(query).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.directory().ok_or(Capability::Directory)?.runs(key, after, limit).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        self.directory().ok_or(Capability::Directory)?.messages_before(key, before, limit).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        self.directory()
            .ok_or(Capability::Directory)?
            .set_description(key, description, expected_version)
            .await
    }

    async fn change_description(
        &self,
        key: &ConversationKey,
        patch: &DescriptionPatch,
    ) -> Result<Description, StoreError> {
        self.directory().ok_or(Capability::Directory)?.change_description(key, patch).await
    }
}
