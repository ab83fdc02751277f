//! The checksum of a stored message, so that one which was damaged is not read as another.
//!
//! SQLite's pages have none: a bit that a disk has flipped in a text is read as another text. Of single
//! bits flipped in a file whose rows have no checksum, one in two was (measured by the campaign
//! `corruption`, on a file most of which is text).
//!
//! It is the CRC-32 of the number of the message in its conversation, its id, and its body, and is
//! stored as a signed number, which takes four bytes. It does not cover the number of the conversation,
//! so that a copy of a row has the checksum of the row: a row in another conversation has a number that
//! is not expected there.

use rusqlite::{Connection, OptionalExtension, Row, params, types::ValueRef};

use crate::row_key;

/// The checksum of a message: its number, run, index in the run, and body.
pub(crate) fn of(sequence: u64, run: &[u8], index: i64, body: &[u8]) -> i32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_be_bytes());
    hasher.update(run);
    hasher.update(&index.to_be_bytes());
    hasher.update(body);
    hasher.finalize().cast_signed()
}

/// Whether a row of row key, run, index in the run, body and checksum is as it was stored. Rows of
/// releases before checksums have none.
pub(crate) fn fits(row: &Row<'_>) -> rusqlite::Result<bool> {
    let stored = match row.get_ref(4)? {
        ValueRef::Null => return Ok(true),
        ValueRef::Integer(stored) => stored,
        ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => return Ok(false),
    };
    let ids = (row.get_ref(1)?, row.get_ref(2)?, row.get_ref(3)?);
    let (ValueRef::Blob(run), ValueRef::Integer(index), ValueRef::Text(body)) = ids else {
        return Ok(false);
    };
    Ok(stored == i64::from(of(row_key::sequence(row.get(0)?), run, index, body)))
}

/// Puts another body into the row of a message.
pub(crate) fn replace_body(
    connection: &Connection,
    row_key: i64,
    body: &str,
) -> rusqlite::Result<()> {
    let checksum = connection
        .prepare_cached("SELECT run, run_index FROM messages WHERE place = ?1")?
        .query_row([row_key], |row| match (row.get_ref(0)?, row.get_ref(1)?) {
            (ValueRef::Blob(run), ValueRef::Integer(index)) => {
                Ok(Some(of(row_key::sequence(row_key), run, index, body.as_bytes())))
            }
            _ => Ok(None),
        })
        .optional()?;
    connection
        .prepare_cached("UPDATE messages SET body = ?2, checksum = ?3 WHERE place = ?1")?
        .execute(params![row_key, body, checksum.flatten()])?;
    Ok(())
}
