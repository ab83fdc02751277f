//! Whether the file holds sealed data, and which changes it takes then.

use rusqlite::Connection;
use tower_chat_core::store::StoreError;

use crate::append::NotStored;

/// Lets a change through, or refuses it: a file that holds sealed data takes no change from outside of the
/// wrapper that seals them. Returns whether the file holds sealed data. To be called in the transaction of
/// the change, before anything is written.
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

/// Marks the file as one that holds sealed data.
pub(crate) fn set(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE store_marks SET holds_sealed = 1", []).map(drop)
}
