//! The writer's cache of conversation heads, which saves a query in each append. The head is the
//! row of a conversation: everything about it except its messages.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use rusqlite::{Connection, FileControl};
use tower_chat_core::ConversationKey;

use crate::{
    append::NotStored,
    conversation::{self, Conversation},
    read::NotRead,
    seal_mark,
};

/// The maximum number of cached conversations. A full cache is cleared.
const LIMIT: usize = 512;

/// The heads of conversations that this connection has written, which are valid until another
/// connection commits.
#[derive(Debug, Default)]
pub(crate) struct HeadCache {
    /// The data version after the latest commit on this connection; `None` after the cache was
    /// cleared.
    version: Option<u32>,
    /// The cached heads. A fast hash function suffices, because the map contains at most [`LIMIT`]
    /// entries.
    known: HashMap<ConversationKey, Conversation, RandomState>,
    /// Whether the file contains sealed (encrypted) data; `None` if this is not known yet.
    holds_sealed: Option<bool>,
    /// Set by tests: the writer panics when it reads this conversation.
    #[cfg(test)]
    pub(crate) panics_at: Option<ConversationKey>,
}

impl HeadCache {
    /// Clears the cache if another connection has committed. Must be called at the beginning of
    /// each transaction.
    pub(crate) fn begin(&mut self, version: u32) {
        if self.version != Some(version) {
            self.known.clear();
            self.holds_sealed = None;
        }
    }

    /// Stores the data version after a commit, or clears the cache if it is unknown. Must be called
    /// after every commit.
    pub(crate) fn committed(&mut self, version: Option<u32>) {
        self.version = version;
        if version.is_none() {
            self.forget();
        }
    }

    /// Calls [`seal_mark::admit`] with the cached mark of the file.
    pub(crate) fn admit(
        &mut self,
        connection: &Connection,
        is_sealed: bool,
    ) -> Result<(), NotStored> {
        let holds_sealed = seal_mark::admit(connection, self.holds_sealed, is_sealed)?;
        self.holds_sealed = Some(holds_sealed);
        Ok(())
    }

    /// Returns the head of a conversation from the cache, or from the file if it is not cached.
    pub(crate) fn find(
        &self,
        connection: &Connection,
        key: &ConversationKey,
    ) -> Result<Option<Conversation>, NotRead> {
        #[cfg(test)]
        self.panic_at(key);
        match self.known.get(key) {
            Some(known) => Ok(Some(known.clone())),
            None => conversation::find(connection, key),
        }
    }

    #[cfg(test)]
    pub(crate) fn panic_at(&self, key: &ConversationKey) {
        assert!(self.panics_at.as_ref() != Some(key), "made to panic");
    }

    /// Caches the head that the current transaction has written.
    pub(crate) fn keep(&mut self, key: &ConversationKey, conversation: Conversation) {
        // A head with a partial text is not cached, because the size of this text is not limited.
        if conversation.open.as_ref().is_some_and(|open| open.partial_text.is_some()) {
            self.known.remove(key);
        } else if let Some(known) = self.known.get_mut(key) {
            *known = conversation;
        } else {
            if self.known.len() >= LIMIT {
                self.known.clear();
            }
            self.known.insert(key.clone(), conversation);
        }
    }

    /// Clears the cache, after a rollback or a change other than an append.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.known.clear();
        self.holds_sealed = None;
    }
}

/// Returns SQLite's data version, which changes with every commit. Unlike `PRAGMA data_version`,
/// this function executes no SQL statement.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let mut version = 0;
    // `None` names the main database.
    connection.file_control(None::<&str>, FileControl::DataVersion(&mut version))?;
    Ok(version)
}
