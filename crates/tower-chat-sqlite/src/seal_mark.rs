//! The mark of a file that contains sealed data, and the check of changes against it.

use rusqlite::Connection;
use tower_chat_core::store::StoreError;

use crate::append::NotStored;

/// Admits a change or refuses it: a file with sealed data accepts only changes from the wrapper
/// that seals the data. A sealed change sets the mark of the file. Returns whether the file
/// contains sealed data afterwards. `known` is the current mark, if the caller knows it. Must be
/// called in the transaction of the change, before anything else is written.
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

/// Marks the file as one that contains sealed data.
pub(crate) fn set(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE store_marks SET holds_sealed = 1", []).map(drop)
}
