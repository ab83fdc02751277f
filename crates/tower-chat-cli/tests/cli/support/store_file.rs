//! Reads and changes the SQLite file of a store without the store.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, types::Value};

/// Returns the number of stored messages, or 0 if the file does not exist.
pub(crate) fn stored_messages(path: &Path) -> usize {
    let count = || {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.query_row("SELECT count(*) FROM messages", [], |row| row.get::<_, i64>(0))
    };
    usize::try_from(count().unwrap_or(0)).unwrap()
}

/// Replaces a text in stored messages. Returns the number of changed messages.
pub(crate) fn replace_stored(path: &Path, text: &str, by: &str) -> usize {
    let connection = Connection::open(path).unwrap();
    let sql = "UPDATE messages SET body = replace(body, ?1, ?2) WHERE instr(body, ?1)";
    connection.execute(sql, [text, by]).unwrap()
}

/// Sets the version of the file to that of a newer release.
pub(crate) fn make_newer(path: &Path) {
    Connection::open(path).unwrap().pragma_update(None, "user_version", 99).unwrap();
}

/// Executes a statement on the file. Returns the number of changed rows.
pub(crate) fn execute(path: &Path, sql: &str) -> usize {
    Connection::open(path).unwrap().execute(sql, []).unwrap()
}

/// Executes a statement without the constraints of the schema, which would refuse the changed rows.
pub(crate) fn execute_unchecked(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
    assert!(connection.execute(sql, []).unwrap() > 0, "{sql}");
}

/// Returns every row of every table as text.
pub(crate) fn dump(path: &Path) -> Vec<String> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut rows = Vec::new();
    for table in ["conversations", "messages", "tool_invocations"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let value = |column| format!("{:?}", row.get::<_, Value>(column).unwrap());
            Ok(format!("{table}: {}", (0..columns).map(value).collect::<Vec<_>>().join(", ")))
        };
        rows.extend(statement.query_map([], row).unwrap().map(Result::unwrap));
    }
    rows
}

/// Returns the number of stored messages that contain a text.
pub(crate) fn count_messages_with(path: &Path, text: &str) -> usize {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sql = "SELECT count(*) FROM messages WHERE instr(body, ?1)";
    let count: i64 = connection.query_row(sql, [text], |row| row.get(0)).unwrap();
    usize::try_from(count).unwrap()
}
