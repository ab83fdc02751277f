//! The rows of open runs, and their staged messages. A run is open until it is committed to the
//! history or discarded. Until then its messages are staged: stored, but not visible to readers.

use std::{sync::Arc, time::SystemTime};

use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        Lease, LeaseEnd, OpenRun, ServiceIdChange, StoreError,
        author::{OpenRunContent, milliseconds},
    },
};

use crate::{
    conversation,
    read::{self, NotRead},
    row_key, tool_row,
};

/// Returns the open run of a conversation, if there is one.
pub(crate) fn find(
    connection: &Connection,
    conversation: i64,
) -> rusqlite::Result<Option<OpenRun>> {
    connection
        .prepare_cached("SELECT * FROM open_runs WHERE number = ?1")?
        .query_row([conversation], |row| read(row, 0))
        .optional()
}

/// Reads an open run from a row whose column `first` is the first one of the table `open_runs`.
fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<OpenRun> {
    let lease = Lease {
        attempt: row.get(first + 2)?,
        holder: row.get::<_, i64>(first + 3)?.cast_unsigned(),
        renewed_at: time(row, first + 5)?,
        until: LeaseEnd::from_stored(
            row.get::<_, Option<i64>>(first + 6)?.map(|_| time(row, first + 6)).transpose()?,
        ),
    };
    let visible = conversation::unsigned(row, first + 7)?;
    let run = RunId::from_bytes(row.get(first + 1)?);
    let mut open = OpenRun::new(run, lease, visible);
    open.opened_at = time(row, first + 4)?;
    if row.get(first + 8)? {
        let id: Option<Arc<str>> = row.get(first + 9)?;
        open.service_id = Some(id.map_or(ServiceIdChange::Clear, ServiceIdChange::Set));
    }
    open.partial_text = row.get(first + 10)?;
    Ok(open)
}

fn time(row: &Row<'_>, index: usize) -> rusqlite::Result<SystemTime> {
    let stored = row.get(index)?;
    milliseconds::time(stored).ok_or(rusqlite::Error::IntegralValueOutOfRange(index, stored))
}

/// Replaces the row of an open run if the run has changed. Returns the run with its times as
/// stored.
pub(crate) fn put(
    connection: &Connection,
    conversation: i64,
    before: Option<&OpenRun>,
    open: OpenRun,
) -> rusqlite::Result<OpenRun> {
    let open = stored_times(open);
    if before == Some(&open) {
        return Ok(open);
    }
    let service_id = match &open.service_id {
        Some(ServiceIdChange::Set(id)) => Some(&**id),
        Some(ServiceIdChange::Clear) | None => None,
    };
    connection
        .prepare_cached(
            "REPLACE INTO open_runs VALUES (:number, :run, :attempt, :holder, :opened, :renewed,
                :until, :visible, :changes_service_id, :service_id, :partial_text)",
        )?
        .execute(named_params! {
            ":number": conversation,
            ":run": open.run.to_bytes(),
            ":attempt": open.lease.attempt,
            ":holder": open.lease.holder.cast_signed(),
            ":opened": milliseconds::of(open.opened_at),
            ":renewed": milliseconds::of(open.lease.renewed_at),
            ":until": open.lease.until.to_stored().map(milliseconds::of),
            ":visible": open.visible.cast_signed(),
            ":changes_service_id": open.service_id.is_some(),
            ":service_id": service_id,
            ":partial_text": open.partial_text.as_deref(),
        })?;
    Ok(open)
}

/// Returns the run with its times rounded to the precision with which they are stored.
fn stored_times(mut open: OpenRun) -> OpenRun {
    let stored = |time| milliseconds::time(milliseconds::of(time)).unwrap_or(time);
    open.opened_at = stored(open.opened_at);
    open.lease.renewed_at = stored(open.lease.renewed_at);
    open.lease.until = LeaseEnd::from_stored(open.lease.until.to_stored().map(stored));
    open
}

/// Deletes the row of a conversation's open run. The messages of the run are then visible.
pub(crate) fn close(connection: &Connection, conversation: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM open_runs WHERE number = ?1")?
        .execute([conversation])?;
    Ok(())
}

/// Returns whether all messages after the last visible one belong to the run. If not, the row is
/// damaged.
pub(crate) fn owns_the_rest(
    connection: &Connection,
    conversation: i64,
    open: &OpenRun,
) -> rusqlite::Result<bool> {
    let (first, last) = row_key::range_after(conversation, open.visible);
    connection
        .prepare_cached(
            "SELECT NOT EXISTS (
                 SELECT 1 FROM messages WHERE place BETWEEN ?1 AND ?2 AND run <> ?3
             )",
        )?
        .query_row(params![first, last, open.run.to_bytes()], |row| row.get(0))
}

/// Deletes all messages after the last visible message, and the row of the open run.
pub(crate) fn discard(
    connection: &Connection,
    conversation: i64,
    visible: u64,
) -> rusqlite::Result<()> {
    let (first, last) = row_key::range_after(conversation, visible);
    for sql in [
        "DELETE FROM messages WHERE place BETWEEN ?1 AND ?2",
        "DELETE FROM tool_invocations WHERE place BETWEEN ?1 AND ?2",
    ] {
        connection.prepare_cached(sql)?.execute([first, last])?;
    }
    close(connection, conversation)
}

/// Returns an open run with its staged messages and rows, from one snapshot; `None` if no run is
/// open.
pub(crate) fn content(
    connection: &Connection,
    key: &ConversationKey,
) -> Result<Option<OpenRunContent>, NotRead> {
    let snapshot = connection.unchecked_transaction()?;
    let Some(found) = conversation::find(&snapshot, key)? else { return Ok(None) };
    let head = found.head();
    let Some(open) = found.open else { return Ok(None) };
    let range = row_key::range_after(found.number, open.visible);
    let mut statement = snapshot.prepare_cached(read::MESSAGES)?;
    let mut bytes = 0;
    let messages = read::messages(&mut statement, key, range, open.visible, &mut bytes)?;
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    let mut statement = snapshot.prepare_cached(&format!(
        "SELECT place, {} FROM tool_invocations
         WHERE place BETWEEN ?1 AND ?2 ORDER BY place, call_index",
        tool_row::COLUMNS
    ))?;
    let mut rows = statement.query([range.0, range.1])?;
    let mut tools = Vec::new();
    while let Some(row) = rows.next()? {
        let sequence = row_key::sequence(row.get(0)?);
        let record = tool_row::read(row, 1, sequence).map_err(|reason| {
            let reason = format!(
                "the record of a call of message {sequence} in conversation {key}: {reason}"
            );
            NotRead::Damaged(StoreError::Corrupt { reason })
        })?;
        tools.push(record);
    }
    Ok(Some(OpenRunContent::new(head, open, messages, tools)))
}

/// Returns up to `limit` conversations of a scope that have an open run, in the byte order of their
/// ids, beginning with the first id greater than `after`.
pub(crate) fn list(
    connection: &Connection,
    scope: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ConversationKey>, NotRead> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let scope: Arc<str> = scope.into();
    // `CROSS JOIN` makes SQLite read the table of open runs first, because it has few rows.
    let mut statement = connection.prepare_cached(
        "SELECT conversation
         FROM open_runs CROSS JOIN conversations ON id = number
         WHERE scope = ?1 AND (?2 IS NULL OR conversation > ?2)
         ORDER BY conversation LIMIT ?3",
    )?;
    let keys = statement.query_map((&*scope, after, limit), |row| {
        Ok(ConversationKey::new(scope.clone(), row.get::<_, Arc<str>>(0)?))
    })?;
    Ok(keys.collect::<Result<_, _>>()?)
}
