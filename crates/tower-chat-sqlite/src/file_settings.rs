//! The settings and the condition of a file, for diagnostics.

use std::path::Path;

use rusqlite::{Connection, ErrorCode};
use tokio::runtime::Handle;
use tower_chat_core::{BoxError, Classified};

use crate::{OpenError, SqliteStore, file::StoreFile, schema};

/// The settings and the condition of the file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSettings {
    /// The version of the file's schema.
    pub version: i64,
    /// The version of the schema that this release writes.
    pub supported_version: i64,
    /// SQLite's journal mode: `wal` for every store that was completely created.
    pub journal_mode: String,
    /// The size of the file, in bytes.
    pub file_bytes: u64,
    /// The size of the file's write-ahead log, in bytes; 0 if the file has no log.
    pub log_bytes: u64,
    /// The number of unused bytes in the file.
    pub free_bytes: u64,
    /// The errors that a quick check of the file found; empty if the file is intact. Unlike
    /// [`check_integrity`](SqliteStore::check_integrity), the quick check does not compare indexes
    /// with their tables.
    pub damage: Vec<String>,
}

impl SqliteStore {
    /// Returns the settings and the condition of the file at a path. The function reads the whole
    /// file, and creates and changes nothing. The function accepts files of every release up to
    /// this one, even while other processes have these files open. Must be called on a tokio
    /// runtime.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("chat.db");
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use tower_chat_sqlite::SqliteStore;
    /// # SqliteStore::open(&path).await?;
    /// let settings = SqliteStore::file_settings(&path).await?;
    /// assert_eq!(settings.version, settings.supported_version);
    /// assert!(settings.damage.is_empty());
    /// # Ok::<(), tower_chat_sqlite::OpenError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if there is no readable store at the path.
    pub async fn file_settings(path: impl AsRef<Path>) -> Result<FileSettings, OpenError> {
        let path = path.as_ref().to_path_buf();
        let failed = {
            let path = path.clone();
            move |cause: BoxError| OpenError::Io { path, source: Classified::permanent(cause) }
        };
        let runtime = match Handle::try_current() {
            Ok(runtime) => runtime,
            Err(error) => return Err(failed(error.into())),
        };
        let read = runtime.spawn_blocking(move || read(&path)).await;
        read.unwrap_or_else(|error| Err(failed(error.into())))
    }
}

fn read(path: &Path) -> Result<FileSettings, OpenError> {
    let file = StoreFile::of_any_version(path)?;
    let sizes = file.sizes_on_disk();
    let settings = file.reader().and_then(|reader| read_settings(&reader, sizes));
    settings.map_err(|error| file.failure(error).open_error())
}

/// Reads the settings through a connection. The caller passes the sizes of the file and its log.
fn read_settings(
    reader: &Connection,
    (file_bytes, log_bytes): (u64, u64),
) -> rusqlite::Result<FileSettings> {
    let number = |name| reader.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (pages, size) = (number("freelist_count")?, number("page_size")?);
    Ok(FileSettings {
        version: number("user_version")?,
        supported_version: schema::VERSION,
        journal_mode: reader.pragma_query_value(None, "journal_mode", |row| row.get(0))?,
        file_bytes,
        log_bytes,
        free_bytes: u64::try_from(pages.saturating_mul(size)).unwrap_or(0),
        damage: damage(reader)?,
    })
}

/// Returns the errors of a quick check. If damage makes the check itself fail, returns only that
/// error.
fn damage(reader: &Connection) -> rusqlite::Result<Vec<String>> {
    let check = || {
        let mut check = reader.prepare("PRAGMA quick_check")?;
        check.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
    };
    match check() {
        Ok(found) if found == ["ok"] => Ok(Vec::new()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            Ok(vec![error.to_string()])
        }
        found => found,
    }
}
