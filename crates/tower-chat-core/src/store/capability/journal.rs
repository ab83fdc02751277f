//! The capability of open runs.

use async_trait::async_trait;

use super::Capability;
use crate::{
    ConversationKey,
    store::{HistoryStore, StoreError, author::OpenRunContent},
};

/// The open runs of journaled mode, which are a [capability](Capability) of a store.
///
/// A store with this capability accepts [staged](crate::store::author::Write::staged) writes, and
/// returns the staged messages and rows of open runs. The documentation of [`HistoryStore`] lists
/// the rules for open runs.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Returns the conversation's open run with all its staged messages and rows; `None` if there
    /// is no open run.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a part of the run cannot be decoded.
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError>;

    /// Returns up to `limit` conversations of a scope that have an open run, in the byte order of
    /// their ids, beginning with the first id greater than `after`. This method does not read the
    /// runs, so that a damaged run does not hide the others. To read a run, use
    /// [`head`](HistoryStore::head) or [`open_run`](Self::open_run).
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
}

/// Every operation fails with [`StoreError::MissingCapability`] if the store lacks the capability.
#[async_trait]
impl Journal for dyn HistoryStore + '_ {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.journal().ok_or(Capability::Journal)?.open_run(key).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.journal().ok_or(Capability::Journal)?.open_runs(scope, after, limit).await
    }
}
