//! A conversation without its messages.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use tower_chat_core::{
    ConversationKey,
    store::{Head, OpenRun, Revision},
};

use crate::{open_run, place};

/// A conversation that is there.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) number: i64,
    pub(crate) revision: Revision,
    pub(crate) pruned: u64,
    pub(crate) service_id: Option<Arc<str>>,
    pub(crate) open: Option<OpenRun>,
}

impl Conversation {
    /// The number of the last message that readers see.
    pub(crate) fn visible(&self) -> u64 {
        self.open.as_ref().map_or(self.revision.sequence, |open| open.visible)
    }

    pub(crate) fn head(&self) -> Head {
        Head::new(self.revision)
            .with_pruned(self.pruned)
            .with_service_id(self.service_id.clone())
            .with_open_run(self.open.clone())
    }
}

/// Looks for a conversation, inside a transaction that somebody else began.
pub(crate) fn find(
    connection: &Connection,
    key: &ConversationKey,
) -> rusqlite::Result<Option<Conversation>> {
    let found = connection
        .prepare_cached(
            "SELECT id, incarnation, service_id, (
                 SELECT place FROM messages
                 WHERE place BETWEEN id << 32 AND (id << 32) + 4294967295
                 ORDER BY place DESC LIMIT 1
             ), pruned
             FROM conversations WHERE scope = ?1 AND conversation = ?2",
        )?
        .query_row([key.scope(), key.id()], |row| {
            let incarnation: i64 = row.get(1)?;
            let last: Option<i64> = row.get(3)?;
            let revision = Revision {
                incarnation: incarnation.cast_unsigned(),
                sequence: last.map_or(0, place::sequence),
            };
            Ok(Conversation {
                number: row.get(0)?,
                revision,
                pruned: row.get::<_, i64>(4)?.cast_unsigned(),
                service_id: row.get(2)?,
                open: None,
            })
        })
        .optional()?;
    let Some(mut found) = found else { return Ok(None) };
    // Not joined: SQLite would prepare the statement again at every use.
    found.open = open_run::find(connection, found.number)?;
    Ok(Some(found))
}

/// Puts a conversation into another incarnation: what expects an earlier one is refused.
pub(crate) fn set_incarnation(
    connection: &Connection,
    conversation: i64,
    incarnation: u64,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE conversations SET incarnation = ?2 WHERE id = ?1")?
        .execute([conversation, incarnation.cast_signed()])?;
    Ok(())
}
