//! Reads the SQLite files of other systems.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, Row,
    config::DbConfig,
    types::{Type, ValueRef},
};

use crate::{Format, ReadError};

/// The number of instructions of SQLite between two calls of the progress handler.
const STEPS: u32 = 1_000;

/// For an empty file, the maximum number of instructions, and the maximum number of bytes that may
/// be read. Both increase with the size of the file.
const MIN_STEPS: u64 = 20_000_000;
const MIN_BYTES: u64 = 1 << 24;

/// The number of additional instructions for each byte of the file. Reading a row, which has at
/// least ten bytes, takes about twenty instructions.
const STEPS_OF_A_BYTE: u64 = 1_000;

/// The number of additional bytes that may be read for each byte of the file.
const READS_OF_A_BYTE: u64 = 16;

/// A read transaction on a file. Other processes may write to the file during the transaction.
///
/// A file may be hostile. SQLite executes no view, trigger or generated column of its schema, and
/// only functions that it considers harmless. The size of the file limits the instructions and the
/// bytes for reading it, because a few pages that refer to each other can represent an almost
/// unlimited number of rows.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    connection: Connection,
    path: &'a Path,
    format: Format,
    /// The remaining number of bytes that may be read.
    bytes: AtomicU64,
}

impl<'a> Snapshot<'a> {
    /// Opens the file and begins a read transaction. Fails if the file does not have these tables.
    pub(crate) fn open(format: Format, path: &'a Path, tables: &[&str]) -> Result<Self, ReadError> {
        // SQLite returns the same error for a missing file and for a file without read permission.
        let file = std::fs::metadata(path)
            .map_err(|source| ReadError::File { path: path.to_owned(), source })?;
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let size = file.len().saturating_add(std::fs::metadata(log).map_or(0, |log| log.len()));
        let connection = connect(path, size).map_err(|error| failed(format, path, error))?;
        let bytes = MIN_BYTES.saturating_add(size.saturating_mul(READS_OF_A_BYTE)).into();
        let snapshot = Self { connection, path, format, bytes };
        snapshot.connection.execute_batch("BEGIN").map_err(|error| snapshot.failed(error))?;
        tables.iter().try_for_each(|table| snapshot.check_table(table))?;
        Ok(snapshot)
    }

    /// Fails if `table` is not an ordinary table, or has generated columns.
    fn check_table(&self, table: &str) -> Result<(), ReadError> {
        let found: Vec<(String, String)> = self.rows(
            "SELECT CAST(type AS TEXT), ifnull(CAST(sql AS TEXT), '') FROM sqlite_schema \
             WHERE name = ?1 COLLATE NOCASE",
            &[table],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let refused = |reason: String| {
            let (path, format) = (self.path.to_owned(), self.format);
            Err(ReadError::OtherFormat { path, format, reason })
        };
        match found.as_slice() {
            [] => return refused(format!("it has no table {table}")),
            [(kind, sql)] if kind == "table" && !is_virtual(sql) => {}
            _ => return refused(format!("its {table} is not an ordinary table")),
        }
        let generated: Vec<String> = self.rows(
            "SELECT name FROM pragma_table_xinfo(?1) WHERE hidden <> 0",
            &[table],
            |row| row.get(0),
        )?;
        match generated.first() {
            None => Ok(()),
            Some(column) => {
                refused(format!("the column {column} of its table {table} is computed, not stored"))
            }
        }
    }

    pub(crate) fn rows<T>(
        &self,
        query: &str,
        parameters: &[&str],
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ReadError> {
        let mut rows = || -> rusqlite::Result<Vec<T>> {
            let mut statement = self.connection.prepare(query)?;
            let columns = statement.column_count();
            let rows = statement.query_map(rusqlite::params_from_iter(parameters), |row| {
                self.count(row, columns)?;
                read(row)
            })?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        };
        rows().map_err(|error| self.failed(error))
    }

    /// Subtracts the bytes of a row from the remaining number. Fails if too few remain.
    fn count(&self, row: &Row<'_>, columns: usize) -> rusqlite::Result<()> {
        let mut bytes = 0_u64;
        for column in 0..columns {
            let length = match row.get_ref(column)? {
                ValueRef::Text(value) | ValueRef::Blob(value) => value.len() as u64,
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
            };
            bytes = bytes.saturating_add(length);
        }
        let take = |left: u64| left.checked_sub(bytes);
        match self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => {
                let reason = "the file returns more data than its size allows".into();
                Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, reason))
            }
        }
    }

    fn failed(&self, error: rusqlite::Error) -> ReadError {
        failed(self.format, self.path, error)
    }
}

/// Opens a read-only connection that treats the schema of the file as untrusted.
fn connect(path: &Path, size: u64) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    for (setting, value) in [
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    ] {
        connection.set_db_config(setting, value)?;
    }
    let steps = MIN_STEPS.saturating_add(size.saturating_mul(STEPS_OF_A_BYTE));
    let left = Arc::new(AtomicU64::new(steps / u64::from(STEPS)));
    let is_over = move || {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    };
    connection.progress_handler(i32::try_from(STEPS).unwrap_or(i32::MAX), Some(is_over))?;
    Ok(connection)
}

fn is_virtual(sql: &str) -> bool {
    let mut words = sql.split_whitespace().map(str::to_ascii_uppercase);
    words.next().as_deref() != Some("CREATE") || words.next().as_deref() != Some("TABLE")
}

fn failed(format: Format, path: &Path, error: rusqlite::Error) -> ReadError {
    let path = path.to_owned();
    if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
        let reason = "reading it takes more steps than its size allows".to_owned();
        return ReadError::OtherFormat { path, format, reason };
    }
    ReadError::Database { path, format, source: error.into() }
}
