//! SQLite files of other systems, which are read and never changed.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};

use crate::{Format, ReadError};

/// A file as it is at one moment: writers may go on meanwhile.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    connection: Connection,
    path: &'a Path,
    format: Format,
}

impl<'a> Snapshot<'a> {
    /// Opens the file, which must have the table.
    pub(crate) fn open(format: Format, path: &'a Path, table: &str) -> Result<Self, ReadError> {
        // SQLite names a missing file no better than one that it must not open.
        std::fs::metadata(path)
            .map_err(|source| ReadError::File { path: path.to_owned(), source })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .map_err(|error| failed(format, path, error))?;
        let snapshot = Self { connection, path, format };
        snapshot.connection.execute_batch("BEGIN").map_err(|error| snapshot.failed(error))?;
        let found: Vec<String> = snapshot.rows(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1",
            &[table],
            |row| row.get(0),
        )?;
        if found.is_empty() {
            let reason = format!("it has no table {table}");
            return Err(ReadError::OtherFormat { path: path.to_owned(), format, reason });
        }
        Ok(snapshot)
    }

    /// All rows of a query.
    pub(crate) fn rows<T>(
        &self,
        query: &str,
        parameters: &[&str],
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ReadError> {
        let rows = || -> rusqlite::Result<Vec<T>> {
            let mut statement = self.connection.prepare(query)?;
            let rows = statement.query_map(rusqlite::params_from_iter(parameters), read)?;
            rows.collect()
        };
        rows().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> ReadError {
        failed(self.format, self.path, error)
    }
}

fn failed(format: Format, path: &Path, error: rusqlite::Error) -> ReadError {
    ReadError::Database { path: path.to_owned(), format, source: error.into() }
}
