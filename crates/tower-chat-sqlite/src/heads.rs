//! What the connection that writes knows of conversations, so that an append need not look.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use rusqlite::{Connection, FileControl};
use tower_chat_core::ConversationKey;

use crate::{
    conversation::{self, Conversation},
    read::NotRead,
};

/// How many conversations are known at most.
const LIMIT: usize = 512;

/// Conversations as one connection has left them. They are right as long as no other connection,
/// of whatever process, commits anything; SQLite counts commits.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// SQLite's count after the connection's last commit.
    version: Option<u32>,
    /// Few, so a hash that is merely seeded at random is enough against keys chosen to collide.
    known: HashMap<ConversationKey, Conversation, RandomState>,
    /// The writer is to panic where it looks for this conversation.
    #[cfg(test)]
    pub(crate) panics_at: Option<ConversationKey>,
}

impl Heads {
    /// To be called when a transaction begins, with SQLite's count of commits: forgets everything if
    /// it may not be right.
    pub(crate) fn begin(&mut self, version: u32) {
        if self.version != Some(version) {
            self.known.clear();
        }
    }

    /// To be called when the transaction was committed, with the count after it, if it is known.
    pub(crate) fn committed(&mut self, version: Option<u32>) {
        self.version = version;
        if version.is_none() {
            self.forget();
        }
    }

    /// What is known of a conversation, or else is found in the file.
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

    /// Keeps what a conversation is from here on in the transaction.
    pub(crate) fn keep(&mut self, key: &ConversationKey, conversation: Conversation) {
        // A text may be of any size.
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

    /// Forgets everything: the transaction was rolled back, or did something else.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.known.clear();
    }
}

/// The count of commits, one's own and those of others that the connection has seen. Unlike
/// `PRAGMA data_version` it takes no statement.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let mut version = 0;
    // Without a name it is that of the main database, which need not be looked for.
    connection.file_control(None::<&str>, FileControl::DataVersion(&mut version))?;
    Ok(version)
}
