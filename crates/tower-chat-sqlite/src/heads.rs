//! What the connection that writes knows of conversations, so that an append need not look.

use std::collections::HashMap;

use rusqlite::Connection;
use tower_chat_core::ConversationKey;

use crate::conversation::{self, Conversation};

/// How many conversations are known at most.
const LIMIT: usize = 512;

/// Conversations as one connection has left them. They are right as long as no other connection,
/// of whatever process, commits anything; SQLite counts that.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// SQLite's count, in a transaction in which everything known was right.
    version: Option<i64>,
    known: HashMap<ConversationKey, Conversation>,
}

impl Heads {
    /// To be called when a transaction begins: forgets everything if it may not be right.
    pub(crate) fn begin(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let version = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        if self.version.replace(version) != Some(version) {
            self.known.clear();
        }
        Ok(())
    }

    /// Takes what is known of a conversation, or else looks for it. It is unknown until it is
    /// [kept](Self::keep) again.
    pub(crate) fn take(
        &mut self,
        connection: &Connection,
        key: &ConversationKey,
    ) -> rusqlite::Result<Option<Conversation>> {
        match self.known.remove(key) {
            Some(known) => Ok(Some(known)),
            None => conversation::find(connection, key),
        }
    }

    /// Keeps what a conversation is from here on in the transaction.
    pub(crate) fn keep(&mut self, key: &ConversationKey, conversation: Conversation) {
        // A text may be of any size.
        if conversation.open.as_ref().is_some_and(|open| open.partial_text.is_some()) {
            return;
        }
        if self.known.len() >= LIMIT {
            self.known.clear();
        }
        self.known.insert(key.clone(), conversation);
    }

    /// Forgets everything: the transaction was rolled back, or did something else.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.known.clear();
    }
}
