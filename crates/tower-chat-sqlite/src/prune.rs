//! Pruning: deleting the oldest runs of a conversation.

use rusqlite::Connection;
use tower_chat_core::{
    ConversationKey, RunId, ToolStatus,
    store::{Keep, Pruned, SequencePosition, StoreError, author::Pruning},
};

use crate::{append::NotStored, conversation, history_summary, row_key};

/// Deletes the runs of a conversation before the first run that must remain: a run that `keep`
/// retains, or a run with a call that waits for a decision or a result.
pub(crate) fn prune(
    connection: &Connection,
    key: &ConversationKey,
    keep: Keep,
) -> Result<Pruned, NotStored> {
    let Some(found) = conversation::find(connection, key)? else { return Ok(Pruned::default()) };
    if let Some(open) = &found.open {
        let (key, run) = (key.clone(), open.run);
        return Err(NotStored::Refused(StoreError::UnderWay { key, run }));
    }
    let mut pruning = Pruning::new(key, &found.head(), keep);
    see_messages(connection, found.number, &mut pruning)?;
    see_calls(connection, found.number, &mut pruning)?;
    let cut = pruning.cut().map_err(NotStored::Refused)?;
    if cut.last_sequence == 0 {
        return Ok(cut.pruned);
    }
    let (first, last) = row_key::range_to(found.number, cut.last_sequence);
    for sql in [
        "DELETE FROM messages WHERE place BETWEEN ?1 AND ?2",
        "DELETE FROM tool_invocations WHERE place BETWEEN ?1 AND ?2",
    ] {
        connection.prepare_cached(sql)?.execute([first, last])?;
    }
    history_summary::prune(connection, found.number, cut.last_sequence, found.summary)?;
    conversation::set_incarnation(connection, found.number, found.revision.pruned().incarnation)?;
    connection
        .prepare_cached("UPDATE conversations SET pruned = ?2 WHERE id = ?1")?
        .execute([found.number, cut.last_sequence.cast_signed()])?;
    Ok(cut.pruned)
}

/// Passes the sequence number and the run of every message to `pruning`.
fn see_messages(
    connection: &Connection,
    conversation: i64,
    pruning: &mut Pruning,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT place, run FROM messages WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
    )?;
    let (first, last) = row_key::range(conversation);
    let mut rows = statement.query([first, last])?;
    while let Some(row) = rows.next()? {
        pruning.see_message(row_key::sequence(row.get(0)?), RunId::from_bytes(row.get(1)?));
    }
    Ok(())
}

/// Passes every row of the record (one row for each tool call) to `pruning`.
fn see_calls(
    connection: &Connection,
    conversation: i64,
    pruning: &mut Pruning,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT place, call_index, status, result_sequence FROM tool_invocations
         WHERE place BETWEEN ?1 AND ?2",
    )?;
    let (first, last) = row_key::range(conversation);
    let mut rows = statement.query([first, last])?;
    while let Some(row) = rows.next()? {
        let call =
            SequencePosition { sequence: row_key::sequence(row.get(0)?), index: row.get(1)? };
        let status: String = row.get(2)?;
        // An unknown status is treated as `Pending`, so that the run of the call is not deleted.
        let status = status.parse().unwrap_or(ToolStatus::Pending);
        let result: Option<i64> = row.get(3)?;
        let result = result.map(|_| conversation::unsigned(row, 3)).transpose()?;
        pruning.see_call(call, status, result);
    }
    Ok(())
}
