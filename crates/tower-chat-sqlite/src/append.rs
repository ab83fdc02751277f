//! The statements of a write, inside a transaction that somebody else began.

use rusqlite::{Connection, OptionalExtension, params};
use tower_chat_core::{
    ConversationKey, format,
    store::{Conflict, Revision, ServiceIdChange, StoreError, Write},
};

use crate::{place, tool_row};

/// A write with its messages, and the results that are in none, in their stored form.
#[derive(Debug)]
pub(crate) struct EncodedWrite {
    write: Write,
    bodies: Vec<String>,
    results: Vec<Option<String>>,
}

/// Why a write was not stored.
#[derive(Debug)]
pub(crate) enum NotStored {
    /// It may not be; nothing of it was written, and the transaction can go on.
    Refused(StoreError),
    /// SQLite failed, perhaps half-way; the transaction must be rolled back.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotStored {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

impl EncodedWrite {
    pub(crate) fn new(write: Write) -> Self {
        let bodies = write.messages().iter().map(|message| format::encode(message)).collect();
        let results = write.tools().iter().map(tool_row::result_apart).collect();
        Self { write, bodies, results }
    }

    pub(crate) fn key(&self) -> &ConversationKey {
        self.write.key()
    }

    /// Stores the write, if the conversation is at the revision it expects; a write that is stored
    /// already is acknowledged again.
    pub(crate) fn store(&self, connection: &Connection) -> Result<Revision, NotStored> {
        let found = find(connection, self.key())?;
        let revision = found.map_or(Revision::ABSENT, |found| found.revision);
        if revision != self.write.expected() {
            return match found {
                Some(found) if self.is_stored(connection, found)? => Ok(self.write.result()),
                _ => Err(self.conflict(revision)),
            };
        }
        let places = self.places_left(revision)?;
        let result = self.write.result();
        let number = match found {
            Some(found) => found.number,
            None => insert_conversation(connection, self.key(), result.incarnation)?,
        };
        self.insert_messages(connection, number, places)?;
        self.put_tool_rows(connection, number)?;
        self.change_service_id(connection, number)?;
        Ok(result)
    }

    /// Whether the write's first message stands in the conversation at the place it expects. A
    /// write without messages is stored if nothing came after it.
    fn is_stored(&self, connection: &Connection, found: Found) -> rusqlite::Result<bool> {
        if self.bodies.is_empty() {
            return Ok(found.revision == self.write.result());
        }
        let expected = self.write.expected();
        let place = expected
            .sequence
            .checked_add(1)
            .and_then(|sequence| place::of_message(found.number, sequence));
        let Some(place) = place else { return Ok(false) };
        // Without its messages, the revision after the write has the same incarnation as with them.
        if expected.after(self.write.run(), 0).incarnation != found.revision.incarnation {
            return Ok(false);
        }
        let mut statement =
            connection.prepare_cached("SELECT run, run_index FROM messages WHERE place = ?1")?;
        let stored: Option<(Vec<u8>, i64)> =
            statement.query_row([place], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let id = self.write.id();
        Ok(stored
            .is_some_and(|(run, index)| run == id.run.to_bytes() && index == i64::from(id.index)))
    }

    fn conflict(&self, found: Revision) -> NotStored {
        let conflict = Conflict::new(self.key().clone(), self.write.expected(), found);
        NotStored::Refused(Box::new(conflict).into())
    }

    /// The sequences of the write's messages.
    fn places_left(&self, revision: Revision) -> Result<std::ops::Range<u64>, NotStored> {
        let first = revision.sequence + 1;
        let end = first.saturating_add(self.bodies.len() as u64);
        if end - 1 > place::LAST_SEQUENCE {
            let full = place::ConversationFull { key: self.key().clone() };
            let refused = StoreError::backend("append to a conversation", false, full);
            return Err(NotStored::Refused(refused));
        }
        Ok(first..end)
    }

    fn insert_messages(
        &self,
        connection: &Connection,
        number: i64,
        sequences: std::ops::Range<u64>,
    ) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO messages (place, run, run_index, body) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let run = self.write.run().to_bytes();
        for ((sequence, body), index) in sequences.zip(&self.bodies).zip(self.write.id().index..) {
            let place = place::of_message(number, sequence);
            statement.execute(params![place, run, index, body])?;
        }
        Ok(())
    }

    fn put_tool_rows(&self, connection: &Connection, number: i64) -> rusqlite::Result<()> {
        let held = 1..=self.write.result().sequence;
        let rows = self.write.tools().iter().zip(&self.results);
        for (record, result) in rows.filter(|(record, _)| held.contains(&record.call.sequence)) {
            tool_row::put(connection, number, record, result.as_deref())?;
        }
        Ok(())
    }

    fn change_service_id(&self, connection: &Connection, number: i64) -> rusqlite::Result<()> {
        let id = match self.write.service_id() {
            Some(ServiceIdChange::Set(id)) => Some(&**id),
            Some(ServiceIdChange::Clear) => None,
            None => return Ok(()),
        };
        // No row is written where the id is the same.
        connection
            .prepare_cached(
                "UPDATE conversations SET service_id = ?2 WHERE id = ?1 AND service_id IS NOT ?2",
            )?
            .execute(params![number, id])?;
        Ok(())
    }
}

/// Deletes a conversation with all its messages, and its tool rows by the schema's trigger; says
/// whether there was one.
pub(crate) fn delete(connection: &Connection, key: &ConversationKey) -> rusqlite::Result<bool> {
    let Some(found) = find(connection, key)? else { return Ok(false) };
    let (first, last) = place::range(found.number);
    connection
        .prepare_cached("DELETE FROM messages WHERE place BETWEEN ?1 AND ?2")?
        .execute([first, last])?;
    connection
        .prepare_cached("DELETE FROM conversations WHERE id = ?1")?
        .execute([found.number])?;
    Ok(true)
}

/// A conversation that is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) number: i64,
    pub(crate) revision: Revision,
}

pub(crate) fn find(
    connection: &Connection,
    key: &ConversationKey,
) -> rusqlite::Result<Option<Found>> {
    connection
        .prepare_cached(
            "SELECT id, incarnation, (
                 SELECT place FROM messages
                 WHERE place BETWEEN id << 32 AND (id << 32) + 4294967295
                 ORDER BY place DESC LIMIT 1
             )
             FROM conversations WHERE scope = ?1 AND conversation = ?2",
        )?
        .query_row([key.scope(), key.id()], |row| {
            let incarnation: i64 = row.get(1)?;
            let last: Option<i64> = row.get(2)?;
            let revision = Revision {
                incarnation: incarnation.cast_unsigned(),
                sequence: last.map_or(0, place::sequence),
            };
            Ok(Found { number: row.get(0)?, revision })
        })
        .optional()
}

fn insert_conversation(
    connection: &Connection,
    key: &ConversationKey,
    incarnation: u64,
) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO conversations (scope, conversation, incarnation) VALUES (?1, ?2, ?3)",
        )?
        .insert(params![key.scope(), key.id(), incarnation.cast_signed()])
}
