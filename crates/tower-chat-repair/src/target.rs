//! The store that is checked or repaired.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey,
    store::{HistoryStore, StoreError},
};

/// A store that is checked or repaired: conversations, and the file or the keys of the store where it has them.
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
    /// Any store. Encrypted conversations are read with [`encrypted`](Self::encrypted).
    pub fn new(store: impl HistoryStore) -> Self {
        Self { history: Arc::new(store), file: None, sealed: None }
    }

    /// A store whose conversations are encrypted, in part or all.
    #[cfg(feature = "encrypted")]
    pub fn encrypted<S>(store: tower_chat_encrypted::EncryptedStore<S>) -> Self
    where
        S: HistoryStore + Clone,
    {
        let sealed = store.clone();
        Self { sealed: Some(Arc::new(sealed)), ..Self::new(store) }
    }

    /// Also checks the file in which the store is kept, and what is in it beside conversations.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn with_file(mut self, file: tower_chat_sqlite::SqliteStore) -> Self {
        self.file = Some(Arc::new(file));
        self
    }

    /// Whether the file of the store is checked too.
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

/// Rows of a file that belong to no conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StrayRows {
    pub(crate) messages: u64,
    pub(crate) tools: u64,
}

/// The file of a store.
#[async_trait]
pub(crate) trait StoreFile: Send + Sync {
    /// What is wrong with the file itself.
    async fn damage(&self) -> Result<Vec<String>, StoreError>;

    async fn stray_rows(&self) -> Result<StrayRows, StoreError>;

    async fn remove_stray_tools(&self) -> Result<(), StoreError>;
}

/// The beginnings of encrypted conversations, which may be missing because they were pruned without the keys.
#[async_trait]
pub(crate) trait SealedBeginning: Send + Sync {
    /// How many messages are missing, if that is why the conversation cannot be read.
    async fn missing(&self, key: &ConversationKey) -> Option<u64>;

    /// Accepts that they are missing. Returns whether there was something to accept.
    async fn accept(&self, key: &ConversationKey) -> Result<bool, StoreError>;
}
