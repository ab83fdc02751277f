//! Reads a file row by row and rewrites rows in place, for checks and repairs. The record of tool
//! calls has one row for each call.

use std::sync::Arc;

use rusqlite::{Connection, params};
use tower_chat_core::{
    ConversationKey, format,
    store::{
        ConversationRows, DirectoryCounts, Revision, Rewrite, SequencePosition, UsageSum,
        author::ToolRecord,
    },
};

use crate::{
    append::NotStored,
    checksum, conversation, history_summary,
    read::{self, NotRead},
    row_key, tool_row,
};

/// The number of rows that belong to no conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StrayRows {
    /// The number of messages.
    pub messages: u64,
    /// The number of rows of the record of tool calls.
    pub tools: u64,
}

/// Returns the errors that SQLite finds in the file; empty if the file is intact.
pub(crate) fn integrity(connection: &Connection) -> Result<Vec<String>, NotRead> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let reported =
        statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(if reported == ["ok"] { Vec::new() } else { reported })
}

/// Rewrites the whole file without unused space.
pub(crate) fn vacuum(connection: &Connection) -> Result<(), NotRead> {
    Ok(connection.execute_batch("VACUUM")?)
}

/// Returns the rows of a conversation, including unreadable rows; `None` if the conversation does
/// not exist.
pub(crate) fn rows(
    connection: &Connection,
    key: &ConversationKey,
) -> Result<Option<ConversationRows>, NotRead> {
    // All statements read the same snapshot.
    let snapshot = connection.unchecked_transaction()?;
    let Some(found) = conversation::find(&snapshot, key)? else { return Ok(None) };
    let (first, last) = row_key::range_to(found.number, found.visible());
    let mut statement = snapshot.prepare(read::MESSAGES)?;
    let messages = statement.query_map([first, last], |row| {
        Ok((row_key::sequence(row.get(0)?), read::message(row)?.map(Arc::new)))
    })?;
    let messages = messages.collect::<Result<_, _>>()?;
    let mut statement = snapshot.prepare(&format!(
        "SELECT place, {} FROM tool_invocations
         WHERE place BETWEEN ?1 AND ?2 ORDER BY place, call_index",
        tool_row::COLUMNS
    ))?;
    let tools = statement.query_map([first, last], |row| {
        let sequence = row_key::sequence(row.get(0)?);
        // If the index is out of range, `tool_row::read` returns an error.
        let call = SequencePosition { sequence, index: row.get(1).unwrap_or(u32::MAX) };
        Ok((call, tool_row::read(row, 1, sequence)))
    })?;
    let tools = tools.collect::<Result<_, _>>()?;
    Ok(Some(ConversationRows::new(found.head(), messages, tools)))
}

/// Counts the rows that belong to no conversation.
pub(crate) fn stray(connection: &Connection) -> Result<StrayRows, NotRead> {
    let count = |table: &str| {
        let sql = format!(
            "SELECT count(*) FROM {table}
             WHERE place >> 32 NOT IN (SELECT id FROM conversations)"
        );
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
    };
    Ok(StrayRows { messages: count("messages")?, tools: count("tool_invocations")? })
}

/// Deletes the rows of tool calls that belong to no conversation, and returns their number.
pub(crate) fn remove_stray_tools(connection: &Connection) -> Result<u64, NotRead> {
    let removed = connection.execute(
        "DELETE FROM tool_invocations WHERE place >> 32 NOT IN (SELECT id FROM conversations)",
        [],
    )?;
    Ok(removed as u64)
}

/// Executes a rewrite, inside a transaction that the caller has begun.
pub(crate) fn rewrite(connection: &Connection, rewrite: &Rewrite) -> Result<Revision, NotStored> {
    let Some(found) = conversation::find(connection, &rewrite.key)? else {
        return Err(NotStored::Refused(rewrite.conflict(Revision::ABSENT, None)));
    };
    let (number, head) = (found.number, found.head());
    let revision = rewrite.check(&head).map_err(NotStored::Refused)?;
    let mut is_there = connection.prepare_cached("SELECT 1 FROM messages WHERE place = ?1")?;
    for (sequence, _) in &rewrite.messages {
        if !is_there.exists([row_key::of_message(number, *sequence)])? {
            return Err(NotStored::Refused(rewrite.missing(*sequence)));
        }
    }
    for (sequence, message) in &rewrite.messages {
        if let Some(row_key) = row_key::of_message(number, *sequence) {
            checksum::replace_body(connection, row_key, &format::encode(message))?;
        }
    }
    if let Some(first) = rewrite.first_message() {
        history_summary::rewrite(connection, number, first)?;
    }
    let rows: Vec<_> = rewrite.tools_of(&head).map(ToolRecord::columns).collect();
    tool_row::put(connection, number, &rows)?;
    let mut remove = connection
        .prepare_cached("DELETE FROM tool_invocations WHERE place = ?1 AND call_index = ?2")?;
    for call in &rewrite.removed_tools {
        remove.execute(params![row_key::of_message(number, call.sequence), call.index])?;
    }
    if let Some(counts) = &rewrite.counts {
        recount(connection, number, counts)?;
    }
    conversation::set_incarnation(connection, number, revision.incarnation)?;
    Ok(revision)
}

/// Replaces the counts of a conversation in the directory (the table with description, times and
/// counts), and sets negative counts of usage to 0.
fn recount(connection: &Connection, number: i64, counts: &DirectoryCounts) -> Result<(), NotRead> {
    let stored = |count: u64| i64::try_from(count.min(UsageSum::LARGEST)).unwrap_or(i64::MAX);
    connection
        .prepare_cached("UPDATE conversations SET runs = ?2 WHERE id = ?1")?
        .execute([number, stored(counts.runs)])?;
    connection
        .prepare_cached(
            "UPDATE run_usage SET service_calls = max(service_calls, 0),
                 tool_calls = max(tool_calls, 0), input_tokens = max(input_tokens, 0),
                 cached_input_tokens = max(cached_input_tokens, 0),
                 output_tokens = max(output_tokens, 0),
                 reasoning_tokens = max(reasoning_tokens, 0), cost_nanos = max(cost_nanos, 0)
             WHERE number = ?1",
        )?
        .execute([number])?;
    // `run_usage` has a row for each run and model, and the record does not contain the model that
    // has made a call. Therefore the first row of a run gets all calls of the run.
    let mut of_run = connection.prepare_cached(
        "UPDATE run_usage SET tool_calls = CASE
             WHEN model = (SELECT min(model) FROM run_usage WHERE number = ?1 AND run = ?2)
             THEN ?3 ELSE 0 END
         WHERE number = ?1 AND run = ?2",
    )?;
    for (run, calls) in &counts.tool_calls {
        of_run.execute(params![number, run.to_bytes(), stored(*calls)])?;
    }
    Ok(())
}
