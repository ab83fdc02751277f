//! The summaries of a conversation ([`HistorySummary`]). A summary is a text about the messages up
//! to a certain one. The model receives the last summary, which is the summary in force, instead of
//! these messages.
//!
//! A row contains the whole summary in JSON, and a checksum like that of a message
//! ([`crate::checksum`]). The sequence number in the row key is that of the last covered message.
//! Therefore the row with the largest row key contains the summary in force.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tower_chat_core::{
    ConversationKey,
    store::{AddedSummary, HistorySummary, StoreError, SummaryInForce},
};

use crate::{
    append::{self, NotStored},
    checksum, conversation,
    head_cache::HeadCache,
    read::NotRead,
    row_key,
};

/// Returns the summary in force of a conversation.
pub(crate) fn in_force(
    connection: &Connection,
    number: i64,
) -> rusqlite::Result<Option<SummaryInForce>> {
    let (first, last) = row_key::range(number);
    connection
        .prepare_cached(
            "SELECT id, place FROM history_summaries
             WHERE place BETWEEN ?1 AND ?2 ORDER BY place DESC LIMIT 1",
        )?
        .query_row([first, last], |row| {
            let id: i64 = row.get(0)?;
            Ok(SummaryInForce::new(id.cast_unsigned(), row_key::sequence(row.get(1)?)))
        })
        .optional()
}

/// Returns the summaries of a conversation, in the order of the messages that they cover.
pub(crate) fn list(
    connection: &Connection,
    key: &ConversationKey,
) -> Result<Vec<HistorySummary>, NotRead> {
    // All statements read the same snapshot.
    let snapshot = connection.unchecked_transaction()?;
    let Some(number) = conversation::number(&snapshot, key)? else { return Ok(Vec::new()) };
    let (first, last) = row_key::range(number);
    let mut statement = snapshot.prepare_cached(
        "SELECT place, id, body, checksum FROM history_summaries
         WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
    )?;
    let mut rows = statement.query([first, last])?;
    let mut summaries = Vec::new();
    while let Some(row) = rows.next()? {
        summaries.push(summary(row, key)?);
    }
    Ok(summaries)
}

/// Returns the summary with an id.
pub(crate) fn find(
    connection: &Connection,
    key: &ConversationKey,
    id: u64,
) -> Result<Option<HistorySummary>, NotRead> {
    let snapshot = connection.unchecked_transaction()?;
    let Some(number) = conversation::number(&snapshot, key)? else { return Ok(None) };
    let (first, last) = row_key::range(number);
    let mut statement = snapshot.prepare_cached(
        "SELECT place, id, body, checksum FROM history_summaries
         WHERE place BETWEEN ?1 AND ?2 AND id = ?3",
    )?;
    let mut rows = statement.query([first, last, id.cast_signed()])?;
    rows.next()?.map(|row| summary(row, key)).transpose()
}

/// Reads a row, which has the columns `place`, `id`, `body` and `checksum`.
fn summary(row: &Row<'_>, key: &ConversationKey) -> Result<HistorySummary, NotRead> {
    let covers_to = row_key::sequence(row.get(0)?);
    let damaged = |reason: &dyn std::fmt::Display| {
        let reason = format!(
            "the summary of conversation {key} up to message {covers_to} cannot be read, because \
             {reason}: restore the file from a backup"
        );
        NotRead::Damaged(StoreError::Corrupt { reason })
    };
    let text = |error| match error {
        rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..) => {
            damaged(&error)
        }
        error => NotRead::Failed(error),
    };
    let id: i64 = row.get(1)?;
    let body: String = row.get(2).map_err(text)?;
    let summary: HistorySummary = serde_json::from_str(&body).map_err(|error| damaged(&error))?;
    let is_its_own = summary.id == id.cast_unsigned()
        && summary.covers_to == covers_to
        && row.get(3) == Ok(checksum_of(&summary, &body));
    if !is_its_own {
        return Err(damaged(&"its checksum does not match"));
    }
    Ok(summary)
}

fn checksum_of(summary: &HistorySummary, body: &str) -> i32 {
    let run = summary.last.run.to_bytes();
    checksum::of(summary.covers_to, &run, i64::from(summary.last.index), body.as_bytes())
}

/// Adds a summary, inside a transaction that the caller has begun.
pub(crate) fn add(
    connection: &Connection,
    heads: &mut HeadCache,
    key: &ConversationKey,
    summary: &HistorySummary,
    rewrites: u64,
) -> Result<AddedSummary, NotStored> {
    heads.admit(connection, summary.is_sealed)?;
    let Some(mut found) = heads.find(connection, key)? else {
        return Ok(AddedSummary::NoSuchMessage);
    };
    let (first, last) = row_key::range(found.number);
    let is_stored = connection
        .prepare_cached(
            "SELECT 1 FROM history_summaries WHERE place BETWEEN ?1 AND ?2 AND id = ?3",
        )?
        .exists([first, last, summary.id.cast_signed()])?;
    if is_stored {
        return Ok(AddedSummary::Stored);
    }
    let message = append::message_id(connection, found.number, summary.covers_to)?;
    let added = summary.decide(&found.head(), rewrites, message);
    if added != AddedSummary::Stored {
        return Ok(added);
    }
    let body = serde_json::to_string(summary)
        .map_err(|error| NotStored::Refused(StoreError::backend("add a summary", false, error)))?;
    connection
        .prepare_cached(
            "INSERT INTO history_summaries (place, id, body, checksum) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            row_key::of_message(found.number, summary.covers_to),
            summary.id.cast_signed(),
            body,
            checksum_of(summary, &body)
        ])?;
    found.summary = Some(summary.in_force());
    heads.keep(key, found);
    Ok(AddedSummary::Stored)
}

/// Removes the summary in force if it has this id, inside a transaction that the caller has begun.
pub(crate) fn remove(
    connection: &Connection,
    heads: &mut HeadCache,
    key: &ConversationKey,
    id: u64,
) -> Result<bool, NotStored> {
    let Some(mut found) = heads.find(connection, key)? else { return Ok(false) };
    let Some(removed) = found.summary.filter(|summary| summary.id == id) else {
        return Ok(false);
    };
    delete(connection, row_key::range_after(found.number, removed.covers_to.saturating_sub(1)))?;
    found.summary = in_force(connection, found.number)?;
    heads.keep(key, found);
    Ok(true)
}

/// Deletes the summaries up to the sequence number `last`, except for the summary in force.
pub(crate) fn prune(
    connection: &Connection,
    number: i64,
    last: u64,
    in_force: Option<SummaryInForce>,
) -> rusqlite::Result<()> {
    let Some(in_force) = in_force else { return Ok(()) };
    delete(connection, row_key::range_to(number, last.min(in_force.covers_to.saturating_sub(1))))
}

/// Deletes the summaries that cover the message `first`, and increments the number of rewrites
/// (changes of stored messages).
pub(crate) fn rewrite(connection: &Connection, number: i64, first: u64) -> rusqlite::Result<()> {
    delete(connection, row_key::range_after(number, first.saturating_sub(1)))?;
    connection
        .prepare_cached("UPDATE conversations SET rewrites = rewrites + 1 WHERE id = ?1")?
        .execute([number])?;
    Ok(())
}

/// Deletes the summaries in a range of row keys.
pub(crate) fn delete(connection: &Connection, (first, last): (i64, i64)) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM history_summaries WHERE place BETWEEN ?1 AND ?2")?
        .execute([first, last])?;
    Ok(())
}
