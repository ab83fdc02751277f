//! The capabilities that a store may have in addition to the methods of [`HistoryStore`].

mod directory;
mod journal;
mod maintenance;
mod summaries;
mod tool_calls;

pub use self::{
    directory::Directory, journal::Journal, maintenance::Maintenance, summaries::Summaries,
    tool_calls::ToolCallQueries,
};
#[cfg(doc)]
use super::{HistoryStore, StoreError};

/// A capability that a store may have in addition to the methods of [`HistoryStore`]. Each
/// capability is a separate trait. A method of the store returns the implementation of the trait.
///
/// A `dyn HistoryStore` implements all of these traits. If the store lacks a capability, every
/// operation of its trait fails with [`StoreError::MissingCapability`].
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use std::sync::Arc;
/// use tower_chat_core::{ConversationKey, MemoryStore, store::{Directory, HistoryStore}};
///
/// let store: Arc<dyn HistoryStore> = Arc::new(MemoryStore::new());
/// assert!(store.directory().is_some());
/// let summary = store.summary(&ConversationKey::new("alice", "support")).await?;
/// assert!(summary.is_none(), "the conversation does not exist");
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// [`Journal`]: open runs. Journaled mode requires this capability.
    Journal,
    /// [`Directory`]: lists, summaries, descriptions, usage, runs and pages of messages.
    Directory,
    /// [`ToolCallQueries`]: queries of tool calls in a scope.
    ToolCallQueries,
    /// [`Maintenance`]: copies, pruning, scopes, checks and repairs.
    Maintenance,
    /// [`Summaries`]: texts that replace the beginning of a conversation in requests to the model.
    Summaries,
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Journal => "Journal (open runs)",
            Self::Directory => "Directory (lists and summaries of conversations)",
            Self::ToolCallQueries => "ToolCallQueries (queries of tool calls)",
            Self::Maintenance => "Maintenance (copies, pruning and repairs)",
            Self::Summaries => "Summaries (texts that replace earlier messages)",
        })
    }
}
