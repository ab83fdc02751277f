//! The mark that a file contains sealed (encrypted) data, and the function that refuses unsealed
//! changes to such a file.

use rusqlite::Connection;
use tower_chat_core::store::StoreError;

use crate::append::NotStored;

/// Checks whether a change is permitted. A file with sealed data accepts only sealed changes, which
/// the encrypting store makes. A sealed change sets the mark of the file. Returns whether the file
/// contains sealed data after the change. Must be called in the transaction of the change, before
/// its other statements. `known` is the mark, if the caller has cached it.
pub(crate) fn admit(
    connection: &Connection,
    known: Option<bool>,
    is_sealed: bool,
) -> Result<bool, NotStored> {
    let holds_sealed = match known {
        Some(known) => known,
        None => read(connection)?,
    };
    match (holds_sealed, is_sealed) {
        (true, false) => Err(NotStored::Refused(StoreError::Sealed)),
        (false, true) => {
            set(connection)?;
            Ok(true)
        }
        (holds_sealed, _) => Ok(holds_sealed),
    }
}

fn read(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT holds_sealed FROM store_marks")?
        .query_row([], |row| row.get(0))
}

/// Sets the mark that the file contains sealed data.
pub(crate) fn set(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE store_marks SET holds_sealed = 1", []).map(drop)
}
