//! Copies of conversations.

use rusqlite::{Connection, params};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{Revision, StoreError},
};

use crate::{append, conversation, place};

/// Copies what readers see of a conversation; [`Revision::ABSENT`] if they see nothing.
pub(crate) fn fork(
    connection: &Connection,
    from: &ConversationKey,
    to: &ConversationKey,
) -> rusqlite::Result<Result<Revision, StoreError>> {
    if conversation::find(connection, to)?.is_some() {
        return Ok(Err(StoreError::Exists { key: to.clone() }));
    }
    let Some(found) = conversation::find(connection, from)? else {
        return Ok(Ok(Revision::ABSENT));
    };
    let sequence = found.visible();
    if sequence == 0 && found.service_id.is_none() {
        return Ok(Ok(Revision::ABSENT));
    }
    let revision = Revision { incarnation: RunId::new().random_half().max(1), sequence };
    let number = append::insert_conversation(connection, to, revision.incarnation)?;
    if found.pruned > 0 {
        connection
            .prepare_cached("UPDATE conversations SET pruned = ?2 WHERE id = ?1")?
            .execute([number, found.pruned.cast_signed()])?;
    }
    let (first, last) = place::range_to(found.number, sequence);
    let (first_of_copy, _) = place::range(number);
    let distance = first_of_copy - first;
    connection
        .prepare_cached(
            "INSERT INTO messages SELECT place + ?3, run, run_index, body FROM messages
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
    Ok(Ok(revision))
}
