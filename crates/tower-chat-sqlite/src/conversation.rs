//! The row of a conversation in the table `conversations`.
//!
//! A run (the service calls and tool calls for one request) is open while its messages are stored,
//! but not yet committed to the history. A prune deletes the oldest messages, and a rewrite changes
//! stored messages. The incarnation is a random number that both of them change, so that the store
//! refuses later writes with the old number.

use std::sync::{Arc, LazyLock};

use rusqlite::{Connection, OptionalExtension, Row, params};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{Head, OpenRun, Revision, StoreError, SummaryInForce, author::LoadFrom},
};

use crate::{
    directory::{Activity, LAST_ACTIVE, RunCount},
    history_summary, open_run,
    read::NotRead,
    row_key,
};

/// The row of an existing conversation.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    /// The number of the conversation, which is part of its row keys.
    pub(crate) number: i64,
    pub(crate) revision: Revision,
    /// The sequence number of the last pruned message; 0 if none was pruned.
    pub(crate) pruned: u64,
    /// The committed service id: the id under which the model's service has the history.
    pub(crate) service_id: Option<Arc<str>>,
    pub(crate) open: Option<OpenRun>,
    /// The summary that the model receives in place of the first messages.
    pub(crate) summary: Option<SummaryInForce>,
    /// The number of rewrites that changed messages.
    pub(crate) rewrites: u64,
    /// The part of the conversation that the next run needs to load.
    pub(crate) load_from: Option<Arc<LoadFrom>>,
    pub(crate) activity: Activity,
}

impl Conversation {
    /// Returns the sequence number of the last visible message.
    pub(crate) fn visible(&self) -> u64 {
        self.open.as_ref().map_or(self.revision.sequence, |open| open.visible)
    }

    pub(crate) fn head(&self) -> Head {
        Head::new(self.revision)
            .with_pruned(self.pruned)
            .with_service_id(self.service_id.clone())
            .with_open_run(self.open.clone())
            .with_summary(self.summary)
            .with_rewrites(self.rewrites)
            .with_load_from(self.load_from.clone())
    }
}

/// Returns the number of a conversation; `None` if the conversation does not exist.
pub(crate) fn number(
    connection: &Connection,
    key: &ConversationKey,
) -> Result<Option<i64>, NotRead> {
    let sql =
        "SELECT id, (SELECT scope = ?1 AND conversation = ?2 FROM conversations WHERE id = c.id)
         FROM conversations c WHERE scope = ?1 AND conversation = ?2";
    let found: Option<(i64, Option<bool>)> = connection
        .prepare_cached(sql)?
        .query_row([key.scope(), key.id()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((number, is_its_own)) = found else { return Ok(None) };
    check_own(is_its_own == Some(true), key)?;
    checked(number, key).map(Some)
}

/// Fails if the index has returned the row of another conversation, which could belong to another
/// scope. A bit flip can cause this error, because the index contains a copy of each key, and
/// SQLite's pages have no checksums.
fn check_own(is_its_own: bool, key: &ConversationKey) -> Result<(), NotRead> {
    if is_its_own {
        return Ok(());
    }
    let reason = format!(
        "an index of the file is damaged, because it finds the row of another conversation for conversation {key}: \
         restore the file from a backup"
    );
    Err(NotRead::Damaged(StoreError::Corrupt { reason }))
}

/// Returns the number of a conversation, or fails if the number is out of range. The row keys of
/// such a number could belong to another conversation.
fn checked(number: i64, key: &ConversationKey) -> Result<i64, NotRead> {
    if (1..=row_key::LAST_CONVERSATION).contains(&number) {
        return Ok(number);
    }
    let reason = format!(
        "the number of conversation {key} in the file is {number}, which is out of range: restore the \
         file from a backup"
    );
    Err(NotRead::Damaged(StoreError::Corrupt { reason }))
}

/// Reads a conversation, inside a transaction that the caller has begun. Fails if a number in the
/// row is out of range.
pub(crate) fn find(
    connection: &Connection,
    key: &ConversationKey,
) -> Result<Option<Conversation>, NotRead> {
    let found = connection
        .prepare_cached(&FIND)?
        .query_row([key.scope(), key.id()], |row| {
            let incarnation: i64 = row.get(1)?;
            let last: Option<i64> = row.get(3)?;
            let revision = Revision {
                incarnation: incarnation.cast_unsigned(),
                sequence: last.map_or(0, row_key::sequence),
            };
            let is_its_own: Option<bool> = row.get(11)?;
            let found = Conversation {
                number: row.get(0)?,
                revision,
                pruned: unsigned(row, 4)?,
                service_id: row.get(2)?,
                open: None,
                summary: None,
                rewrites: unsigned(row, 12)?,
                load_from: load_from(row.get(13)?),
                activity: activity(row)?,
            };
            Ok((found, is_its_own == Some(true)))
        })
        .optional()?;
    let Some((mut found, is_its_own)) = found else { return Ok(None) };
    check_own(is_its_own, key)?;
    // The open run and the summary are read with separate statements, because SQLite would prepare
    // a statement that joins the tables anew at every use.
    checked(found.number, key)?;
    found.open = open_run::find(connection, found.number)?;
    found.summary = history_summary::in_force(connection, found.number)?;
    found.head().check_range(key, row_key::LAST_SEQUENCE).map_err(NotRead::Damaged)?;
    Ok(Some(found))
}

static FIND: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT id, incarnation, service_id, (
             SELECT place FROM messages
             WHERE place BETWEEN id << 32 AND (id << 32) + 4294967295
             ORDER BY place DESC LIMIT 1
         ), pruned, {LAST_ACTIVE}, runs, last_run, mode, runs_without_open, last_run_without_open,
             (SELECT scope = ?1 AND conversation = ?2 FROM conversations WHERE id = c.id), rewrites,
             load_from
         FROM conversations c WHERE scope = ?1 AND conversation = ?2"
    )
});

/// Reads the column `load_from`.
fn load_from(stored: Option<String>) -> Option<Arc<LoadFrom>> {
    LoadFrom::from_json(&stored?).map(Arc::new)
}

/// Stores the part of a conversation that the next run needs to load.
pub(crate) fn set_load_from(
    connection: &Connection,
    conversation: i64,
    from: &LoadFrom,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE conversations SET load_from = ?2 WHERE id = ?1")?
        .execute(params![conversation, from.to_json()])?;
    Ok(())
}

/// Reads the activity of a conversation from its row.
fn activity(row: &Row<'_>) -> rusqlite::Result<Activity> {
    let count = |first: usize, last: usize| {
        let run: Option<[u8; 16]> = row.get(last)?;
        Ok::<_, rusqlite::Error>(RunCount {
            count: row.get::<_, i64>(first)?.cast_unsigned(),
            last: run.map(RunId::from_bytes),
        })
    };
    let mode: Option<String> = row.get(8)?;
    Ok(Activity {
        last_active: row.get(5)?,
        runs: count(6, 7)?,
        mode: mode.and_then(|mode| mode.parse().ok()),
        without_open_run: count(9, 10)?,
    })
}

/// Reads a number, and fails if it is negative.
pub(crate) fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let stored: i64 = row.get(index)?;
    u64::try_from(stored).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, stored))
}

/// Sets the incarnation of a conversation.
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
