//! Copies of conversations. A turn, the unit of a copy, consists of the messages of a run and of
//! the later runs that answer calls of this run.

use std::time::SystemTime;

use rusqlite::{Connection, params};
use tower_chat_core::{
    ConversationKey, RunId, ToolStatus,
    store::{
        Fork, Parent, Revision, StoreError,
        author::{ForkEnd, Forking, milliseconds},
    },
};

use crate::{
    append::{self, NotStored},
    conversation::{self, Conversation},
    directory::{Activity, RunCount},
    row_key,
};

/// Copies the visible turns that end before a message, or all visible turns.
pub(crate) fn fork(
    connection: &Connection,
    from: &ConversationKey,
    before: Option<u64>,
    to: &ConversationKey,
) -> Result<Fork, NotStored> {
    if conversation::number(connection, to)?.is_some() {
        return Err(NotStored::Refused(StoreError::Exists { key: to.clone() }));
    }
    let Some(found) = conversation::find(connection, from)? else { return Ok(Fork::ABSENT) };
    if found.visible() == 0 && found.service_id.is_none() {
        return Ok(Fork::ABSENT);
    }
    check_whole(connection, from, &found)?;
    let end = end(connection, &found, before)?;
    let is_empty = end.position <= found.pruned;
    // If the copy has no messages, its first message will get the sequence number 1.
    let sequence = if is_empty { 0 } else { end.position };
    let revision = Revision { incarnation: RunId::new().random_half().max(1), sequence };
    let made = milliseconds::of(SystemTime::now());
    let mut runs = match &found.open {
        Some(_) => found.activity.without_open_run,
        None => found.activity.runs,
    };
    if end.runs_after > 0 {
        let count = runs.count.saturating_sub(end.runs_after);
        runs = RunCount { count, last: end.last_run };
    }
    let activity = Activity { last_active: made, runs, ..found.activity };
    let parent = Parent::new(from.clone(), end.position);
    let incarnation = revision.incarnation;
    let number =
        append::insert_conversation(connection, to, incarnation, made, &activity, Some(&parent))?;
    copy_description(connection, found.number, number)?;
    let fork = Fork::new(revision, end.position);
    if is_empty {
        return Ok(fork);
    }
    if found.pruned > 0 {
        connection
            .prepare_cached("UPDATE conversations SET pruned = ?2 WHERE id = ?1")?
            .execute([number, found.pruned.cast_signed()])?;
    }
    let (first, last) = row_key::range_to(found.number, sequence);
    // The numbers of both conversations are in range. Therefore the row keys are in range too.
    let (first_of_copy, _) = row_key::range(number);
    let distance = first_of_copy.saturating_sub(first);
    connection
        .prepare_cached(
            "INSERT INTO messages (place, run, run_index, body, checksum)
             SELECT place + ?3, run, run_index, body, checksum FROM messages
             WHERE place BETWEEN ?1 AND ?2",
        )?
        .execute(params![first, last, distance])?;
    connection
        .prepare_cached(
            "INSERT INTO tool_invocations
             SELECT place + ?3, call_index, round_index, call_id, name, status, result_sequence,
                 result_index, result, error, started, finished
             FROM tool_invocations WHERE place BETWEEN ?1 AND ?2",
        )?
        .execute(params![first, last, distance])?;
    let (first, last) = row_key::range_to(number, sequence);
    // In the copy, a call that waits for approval is a rejected call, as in `ToolRecord::in_copy`.
    connection
        .prepare_cached(
            "UPDATE tool_invocations
             SET status = ?3, result_sequence = NULL, result_index = NULL, result = NULL,
                 error = NULL, started = NULL, finished = NULL
             WHERE place BETWEEN ?1 AND ?2 AND status = ?4",
        )?
        .execute(params![
            first,
            last,
            ToolStatus::RejectedByApproval.as_str(),
            ToolStatus::PendingApproval.as_str()
        ])?;
    Ok(fork)
}

/// Returns the end of a copy of the turns that end before a message, or of all turns.
fn end(
    connection: &Connection,
    found: &Conversation,
    before: Option<u64>,
) -> Result<ForkEnd, NotStored> {
    let mut forking = Forking::new(&found.head(), before);
    let (first, last) = row_key::range_to(found.number, found.visible());
    let mut statement = connection
        .prepare_cached("SELECT place, run FROM messages WHERE place BETWEEN ?1 AND ?2")?;
    let mut rows = statement.query([first, last])?;
    while let Some(row) = rows.next()? {
        forking.see_message(row_key::sequence(row.get(0)?), RunId::from_bytes(row.get(1)?));
    }
    let mut statement = connection.prepare_cached(
        "SELECT place, result_sequence FROM tool_invocations
         WHERE place BETWEEN ?1 AND ?2 AND result_sequence IS NOT NULL",
    )?;
    let mut rows = statement.query([first, last])?;
    while let Some(row) = rows.next()? {
        forking.see_result(row_key::sequence(row.get(0)?), conversation::unsigned(row, 1)?);
    }
    Ok(forking.end())
}

/// Copies the description of a conversation, if one was ever set.
fn copy_description(connection: &Connection, from: i64, to: i64) -> Result<(), NotStored> {
    connection
        .prepare_cached(
            "UPDATE conversations SET title = original.title, metadata = original.metadata,
                 description_version = original.description_version
             FROM (SELECT * FROM conversations WHERE id = ?2) AS original
             WHERE conversations.id = ?1 AND original.description_version > 0",
        )?
        .execute([to, from])?;
    Ok(())
}

/// Checks that no visible message is missing. Must be called before the first change, because the
/// error states that nothing was copied.
fn check_whole(
    connection: &Connection,
    key: &ConversationKey,
    found: &Conversation,
) -> Result<(), NotStored> {
    let (first, last) = row_key::range_to(found.number, found.visible());
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM messages WHERE place BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    let (_, pruned) = row_key::range_to(found.number, found.pruned);
    let misplaced: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM messages WHERE place BETWEEN ?1 AND ?2)")?
        .query_row([first, pruned], |row| row.get(0))?;
    let expected = found.visible().saturating_sub(found.pruned);
    if count.cast_unsigned() == expected && !misplaced {
        return Ok(());
    }
    let reason = format!(
        "conversation {key} has {count} of its {expected} messages: nothing is copied; restore the \
         file from a backup"
    );
    Err(NotStored::Refused(StoreError::Corrupt { reason }))
}
