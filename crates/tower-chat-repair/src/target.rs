//! The target of a check or a repair.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey,
    store::{HistoryStore, StoreError},
};

/// A store to check or repair. The target may include the store's SQLite file, and the keys of its
/// encrypted conversations.
///
/// ```
/// use tower_chat::{MemoryStore, repair::Target};
/// let target = Target::new(MemoryStore::new());
/// assert!(!target.has_file());
/// ```
#[derive(Clone)]
pub struct Target {
    history: Arc<dyn HistoryStore>,
    pub(crate) file: Option<Arc<dyn StoreFile>>,
    pub(crate) sealed: Option<Arc<dyn SealedBeginning>>,
}

impl Target {
    /// Creates a target for a store without encrypted conversations. For a store with encrypted
    /// conversations, use [`encrypted`](Self::encrypted).
    pub fn new(store: impl HistoryStore) -> Self {
        Self { history: Arc::new(store), file: None, sealed: None }
    }

    /// Creates a target for a store that contains encrypted conversations, with the keys of these
    /// conversations.
    #[cfg(feature = "encrypted")]
    pub fn encrypted<S>(store: tower_chat_encrypted::EncryptedStore<S>) -> Self
    where
        S: HistoryStore + Clone,
    {
        let sealed = store.clone();
        Self { sealed: Some(Arc::new(sealed)), ..Self::new(store) }
    }

    /// Adds the SQLite file of the store to the target. The pages of the file are then checked, and
    /// the rows in the file that belong to no conversation are reported or removed.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn with_file(mut self, file: tower_chat_sqlite::SqliteStore) -> Self {
        self.file = Some(Arc::new(file));
        self
    }

    /// Returns whether the target includes the file of the store.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    pub(crate) fn history(&self) -> &Arc<dyn HistoryStore> {
        &self.history
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("has_file", &self.has_file()).finish_non_exhaustive()
    }
}

/// The numbers of rows in a file that belong to no conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StrayRows {
    pub(crate) messages: u64,
    pub(crate) tools: u64,
}

/// The file of a store.
#[async_trait]
pub(crate) trait StoreFile: Send + Sync {
    /// Returns the problems of the file format and of the pages.
    async fn damage(&self) -> Result<Vec<String>, StoreError>;

    async fn stray_rows(&self) -> Result<StrayRows, StoreError>;

    async fn remove_stray_tools(&self) -> Result<(), StoreError>;
}

/// An encrypting store that can mark missing first messages of a conversation as pruned (deleted on
/// purpose). The messages are missing if a process without the encryption keys has removed them.
#[async_trait]
pub(crate) trait SealedBeginning: Send + Sync {
    /// Returns the number of missing first messages. Returns `None` if the conversation is
    /// readable, or is unreadable for another reason.
    async fn missing(&self, key: &ConversationKey) -> Option<u64>;

    /// Marks the missing messages as pruned. Returns `false` if no messages are missing.
    async fn accept(&self, key: &ConversationKey) -> Result<bool, StoreError>;
}
