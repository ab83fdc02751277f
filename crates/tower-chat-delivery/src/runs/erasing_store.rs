//! A store whose deletions also erase updates.
//!
//! A run sends updates to its readers: deltas and messages. The update log stores these updates
//! separately from the history.

use async_trait::async_trait;
use tower_chat_layers::{
    ConversationKey,
    store::{
        Directory, History, HistoryStore, Journal, Maintenance, StoreError, Summaries,
        ToolCallQueries,
        author::{LoadFrom, StoreWrapper},
    },
};

use crate::{Erase, UpdateLog};

/// Wraps a history store. If a conversation is deleted, also erases the updates of its runs.
pub(crate) struct ErasingStore<S, L> {
    inner: S,
    log: L,
}

impl<S, L> ErasingStore<S, L> {
    pub(crate) fn new(inner: S, log: L) -> Self {
        Self { inner, log }
    }
}

#[async_trait]
impl<S: HistoryStore, L: UpdateLog> StoreWrapper for ErasingStore<S, L> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        self.inner.load_from(key, from).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        // A run may append updates until its conversation is deleted. The updates are therefore
        // erased after the deletion. The updates are erased even if the conversation does not
        // exist: an earlier deletion may have failed before the erasure, or a run may have stored
        // no message.
        let was_there = self.inner.delete(key).await?;
        let action = "erase the updates of a conversation: delete the conversation again";
        let erased = self.log.erase(Erase::Conversation(key)).await;
        erased.map_err(|error| StoreError::backend(action, error.is_retryable(), error))?;
        Ok(was_there)
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner.journal()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner.directory()
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.inner.tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.inner.maintenance()
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        self.inner.summaries()
    }
}
