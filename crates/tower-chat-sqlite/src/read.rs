//! The statements that read.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, types::ValueRef};
use serde::de::Error as _;
use tower_chat_core::{
    ConversationKey, Message, MessageId, Messages, RunId,
    format::{self, FormatError},
    store::{Head, History, Revision, StoreError},
};

use crate::place;

/// Why something was not read.
#[derive(Debug)]
pub(crate) enum NotRead {
    /// What is stored is not as it should be.
    Damaged(StoreError),
    /// SQLite failed.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotRead {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// A conversation without its messages.
pub(crate) fn head(connection: &Connection, key: &ConversationKey) -> Result<Head, NotRead> {
    let Some((number, incarnation, service_id)) = conversation(connection, key)? else {
        return Ok(Head::new(Revision::ABSENT));
    };
    let (first, last) = place::range(number);
    let last: Option<i64> = connection
        .prepare_cached(
            "SELECT place FROM messages WHERE place BETWEEN ?1 AND ?2 ORDER BY place DESC LIMIT 1",
        )?
        .query_row([first, last], |row| row.get(0))
        .optional()?;
    let sequence = last.map_or(0, place::sequence);
    Ok(Head::new(Revision { incarnation, sequence }).with_service_id(service_id))
}

/// A conversation with all its messages, as it is at one moment.
pub(crate) fn history(connection: &Connection, key: &ConversationKey) -> Result<History, NotRead> {
    // Both statements see the same moment.
    let snapshot = connection.unchecked_transaction()?;
    let Some((number, incarnation, service_id)) = conversation(&snapshot, key)? else {
        return Ok(History::empty());
    };
    let (first, last) = place::range(number);
    let mut statement = snapshot.prepare_cached(
        "SELECT place, run, run_index, body FROM messages
         WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
    )?;
    let mut rows = statement.query([first, last])?;
    let mut messages: Vec<Arc<Message>> = Vec::new();
    while let Some(row) = rows.next()? {
        let expected = messages.len() as u64 + 1;
        let sequence = place::sequence(row.get(0)?);
        if sequence != expected {
            let reason = format!(
                "message {expected} of conversation {key} is missing: restore the file from a backup"
            );
            return Err(NotRead::Damaged(StoreError::Corrupt { reason }));
        }
        let message = message(row)?.map_err(|source| {
            NotRead::Damaged(StoreError::Undecodable { key: key.clone(), sequence, source })
        })?;
        messages.push(Arc::new(message));
    }
    let revision = Revision { incarnation, sequence: messages.len() as u64 };
    let head = Head::new(revision).with_service_id(service_id);
    Ok(History::new(head, messages.into_iter().collect::<Messages>()))
}

/// Conversations of a scope in the byte order of their ids.
pub(crate) fn list(
    connection: &Connection,
    scope: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ConversationKey>, NotRead> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = match after {
        Some(_) => {
            "SELECT conversation FROM conversations WHERE scope = ?1 AND conversation > ?2
             ORDER BY conversation LIMIT ?3"
        }
        None => {
            "SELECT conversation FROM conversations WHERE scope = ?1 AND conversation >= ?2
             ORDER BY conversation LIMIT ?3"
        }
    };
    let scope: Arc<str> = scope.into();
    let mut statement = connection.prepare_cached(sql)?;
    let ids = statement
        .query_map((&*scope, after.unwrap_or_default(), limit), |row| row.get::<_, Arc<str>>(0))?;
    ids.map(|id| Ok(ConversationKey::new(scope.clone(), id?))).collect()
}

/// All scopes in byte order.
pub(crate) fn scopes(connection: &Connection) -> Result<Vec<String>, NotRead> {
    let mut statement =
        connection.prepare_cached("SELECT DISTINCT scope FROM conversations ORDER BY scope")?;
    let scopes = statement.query_map([], |row| row.get(0))?;
    Ok(scopes.collect::<rusqlite::Result<_>>()?)
}

type ConversationRow = (i64, u64, Option<Arc<str>>);

fn conversation(
    connection: &Connection,
    key: &ConversationKey,
) -> rusqlite::Result<Option<ConversationRow>> {
    connection
        .prepare_cached(
            "SELECT id, incarnation, service_id FROM conversations
             WHERE scope = ?1 AND conversation = ?2",
        )?
        .query_row([key.scope(), key.id()], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned(), row.get(2)?))
        })
        .optional()
}

/// The message of a row of place, run, place in its run, and body.
pub(crate) fn message(row: &Row<'_>) -> rusqlite::Result<Result<Message, FormatError>> {
    let not_ours = |what| Ok(Err(FormatError::Malformed(serde_json::Error::custom(what))));
    let ValueRef::Blob(run) = row.get_ref(1)? else {
        return not_ours("its run id is no bytes");
    };
    let Ok(run) = <[u8; 16]>::try_from(run) else {
        return not_ours("its run id is not 16 bytes");
    };
    let Ok(index) = row.get(2) else {
        return not_ours("its place in its run is no small number");
    };
    let ValueRef::Text(body) = row.get_ref(3)? else {
        return not_ours("it is not text");
    };
    let Ok(body) = std::str::from_utf8(body) else {
        return not_ours("its text is not UTF-8");
    };
    Ok(format::decode(body).map(|mut message| {
        message.id = Some(MessageId { run: RunId::from_bytes(run), index });
        message
    }))
}
