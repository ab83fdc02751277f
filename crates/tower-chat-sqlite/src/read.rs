//! The SQL statements of reads.

use std::sync::Arc;

use rusqlite::{Connection, Row, Statement, types::ValueRef};
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    format::{self, FormatError},
    store::{Head, History, Revision, StoreError, author::LoadFrom},
};

use crate::{
    checksum, conversation, pending_approvals::pending_approvals, removal::NOT_DELETED, row_key,
};

/// The SQL expression for the sequence number of the last visible message: the largest possible
/// number if no run is open. The table `conversations` has the alias `c`.
pub(crate) const VISIBLE: &str =
    "ifnull((SELECT visible FROM open_runs WHERE number = c.id), 4294967295)";

/// The reason why a read failed.
#[derive(Debug)]
pub(crate) enum NotRead {
    /// The stored data are damaged.
    Damaged(StoreError),
    /// SQLite failed.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotRead {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// Reads the head of a conversation: everything about it except its messages.
pub(crate) fn head(connection: &Connection, key: &ConversationKey) -> Result<Head, NotRead> {
    // All statements read the same snapshot.
    let snapshot = connection.unchecked_transaction()?;
    let Some(found) = conversation::find(&snapshot, key)? else {
        return Ok(Head::new(Revision::ABSENT));
    };
    let pending = pending_approvals(&snapshot, key, &found)?;
    Ok(found.head().with_pending_approvals(pending))
}

/// Returns a conversation with its visible messages, read from one snapshot, and the number of
/// bytes of these messages in stored form. `from` selects the messages to read, if the row of the
/// conversation contains the same value. Otherwise all visible messages are read.
pub(crate) fn history(
    connection: &Connection,
    key: &ConversationKey,
    from: Option<&LoadFrom>,
) -> Result<(History, usize), NotRead> {
    let snapshot = connection.unchecked_transaction()?;
    let Some(found) = conversation::find(&snapshot, key)? else {
        return Ok((History::empty(), 0));
    };
    let mut bytes = 0;
    let visible = found.visible();
    let mut read = |after: u64, to: u64| {
        let (_, end) = row_key::range_to(found.number, to);
        let begin = match after == found.pruned {
            // The range begins with the first possible row key, so that a message which a prune (a
            // deletion of old runs) should have deleted is found, and reported as damage.
            true => row_key::range(found.number).0,
            false => row_key::range_after(found.number, after).0,
        };
        let mut statement = snapshot.prepare_cached(MESSAGES)?;
        let messages = messages(&mut statement, key, (begin, end), after, &mut bytes)?;
        let history = History::collect(found.head(), messages)?;
        let last = after.saturating_add(history.messages.len() as u64);
        match last == to.max(after) {
            true => Ok(history),
            false => Err(missing(key, last.saturating_add(1))),
        }
    };
    let from = from.filter(|from| found.load_from.as_deref() == Some(from));
    let from = from.filter(|from| (found.pruned..=visible).contains(&from.after));
    let history = match from {
        Some(from) => {
            let leading = read(found.pruned, from.leading)?.messages;
            read(from.after, visible)?.with_skipped(from.after, leading)
        }
        None => read(found.pruned, visible)?,
    };
    Ok((history, bytes))
}

/// The statement that [`messages`] executes.
pub(crate) const MESSAGES: &str = "SELECT place, run, run_index, body, checksum FROM messages
     WHERE place BETWEEN ?1 AND ?2 ORDER BY place";

/// Returns an iterator over the messages in a range of row keys, which returns an error if their
/// sequence numbers do not begin with `before + 1`, or have a gap. Adds the bytes of each message
/// in stored form to `bytes`.
pub(crate) fn messages(
    statement: &mut Statement<'_>,
    key: &ConversationKey,
    (first, last): (i64, i64),
    before: u64,
    bytes: &mut usize,
) -> Result<impl Iterator<Item = Result<Arc<Message>, NotRead>>, NotRead> {
    let mut rows = statement.query([first, last])?;
    let mut expected = before;
    Ok(std::iter::from_fn(move || {
        let row = rows.next().transpose()?;
        expected = expected.saturating_add(1);
        Some(row.map_err(NotRead::from).and_then(|row| {
            *bytes += body_bytes(row)?;
            message_at(row, key, expected)
        }))
    }))
}

fn body_bytes(row: &Row<'_>) -> rusqlite::Result<usize> {
    Ok(match row.get_ref(3)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
    })
}

/// Decodes the message of a row. Fails if the row has another sequence number than `expected`.
fn message_at(
    row: &Row<'_>,
    key: &ConversationKey,
    expected: u64,
) -> Result<Arc<Message>, NotRead> {
    let sequence = row_key::sequence(row.get(0)?);
    if sequence != expected {
        return Err(missing(key, expected));
    }
    let message = message(row)?.map_err(|source| {
        NotRead::Damaged(StoreError::Undecodable { key: key.clone(), sequence, source })
    })?;
    Ok(Arc::new(message))
}

/// Creates the error for a message that is missing.
pub(crate) fn missing(key: &ConversationKey, sequence: u64) -> NotRead {
    let reason = format!(
        "message {sequence} of conversation {key} is missing: restore the file from a backup"
    );
    NotRead::Damaged(StoreError::Corrupt { reason })
}

/// Returns up to `limit` conversations of a scope, in the byte order of their ids, beginning with
/// the first id greater than `after`. The list does not contain a conversation that has neither a
/// visible message nor a service id (the id under which the model's service has the history).
pub(crate) fn list(
    connection: &Connection,
    scope: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ConversationKey>, NotRead> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let start = match after {
        Some(_) => ">",
        None => ">=",
    };
    let sql = format!(
        "SELECT conversation
         FROM conversations c
         WHERE scope = ?1 AND conversation {start} ?2 AND {NOT_DELETED}
             AND (service_id IS NOT NULL OR EXISTS (
                 SELECT 1 FROM messages
                 WHERE place BETWEEN id << 32 AND (id << 32) + {VISIBLE}
             ))
         ORDER BY conversation LIMIT ?3"
    );
    let scope: Arc<str> = scope.into();
    let mut statement = connection.prepare_cached(&sql)?;
    let ids = statement
        .query_map((&*scope, after.unwrap_or_default(), limit), |row| row.get::<_, Arc<str>>(0))?;
    ids.map(|id| Ok(ConversationKey::new(scope.clone(), id?))).collect()
}

/// Returns up to `limit` scopes in byte order, beginning with the first one greater than `after`.
/// The list also contains scopes in which no conversation has a visible message.
pub(crate) fn scopes(
    connection: &Connection,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, NotRead> {
    let mut found: Vec<String> = Vec::new();
    if after.is_none() && limit > 0 && has_scope_without_name(connection)? {
        found.push(String::new());
    }
    let mut next =
        connection.prepare_cached("SELECT min(scope) FROM conversations WHERE scope > ?1")?;
    while found.len() < limit {
        let last = found.last().map_or(after.unwrap_or_default(), String::as_str);
        let Some(scope) = next.query_row([last], |row| row.get(0))? else { break };
        found.push(scope);
    }
    Ok(found)
}

/// Returns whether the empty scope contains a conversation whose deletion has not begun.
fn has_scope_without_name(connection: &Connection) -> Result<bool, NotRead> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT 1 FROM conversations c WHERE scope = '' AND {NOT_DELETED} LIMIT 1"
    ))?;
    Ok(statement.exists([])?)
}

/// Decodes a row with the columns row key, run, index in the run, body and checksum.
pub(crate) fn message(row: &Row<'_>) -> rusqlite::Result<Result<Message, FormatError>> {
    let not_ours = |what| Ok(Err(FormatError::malformed(what)));
    let ValueRef::Blob(run) = row.get_ref(1)? else {
        return not_ours("its run id is not a blob");
    };
    let Ok(run) = <[u8; 16]>::try_from(run) else {
        return not_ours("the length of its run id is not 16 bytes");
    };
    let Some(index) = row.get(2).ok().filter(|index| *index <= MessageId::LAST_INDEX) else {
        return not_ours("its index in its run is out of range");
    };
    let ValueRef::Text(body) = row.get_ref(3)? else {
        return not_ours("its body is not text");
    };
    let Ok(body) = std::str::from_utf8(body) else {
        return not_ours("its body is not UTF-8");
    };
    if !checksum::fits(row)? {
        return not_ours("its checksum does not match: it was changed after it was stored");
    }
    Ok(format::decode(body).map(|mut message| {
        message.id = Some(MessageId { run: RunId::from_bytes(run), index });
        message
    }))
}
