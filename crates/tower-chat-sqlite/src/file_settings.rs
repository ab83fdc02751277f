//! What a file is, for those who check it.

use std::path::Path;

use rusqlite::{Connection, ErrorCode};
use tokio::runtime::Handle;

use crate::{OpenError, SqliteStore, file::StoreFile, schema};

/// What the file of a store is like.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSettings {
    /// The version of its schema.
    pub version: i64,
    /// The version that this release writes.
    pub supported_version: i64,
    /// How SQLite makes changes of it durable: `wal`, once a store has been written.
    pub journal_mode: String,
    /// How large the file is.
    pub file_bytes: u64,
    /// How large its write-ahead log is; 0 without one.
    pub log_bytes: u64,
    /// How much of the file holds nothing.
    pub free_bytes: u64,
    /// What a quick check of the file finds wrong; nothing, if it is sound. Unlike
    /// [`check_integrity`](SqliteStore::check_integrity) it does not compare indexes with their tables.
    pub damage: Vec<String>,
}

impl SqliteStore {
    /// What the file at a path is like. Nothing is made or changed, and files of every release will do,
    /// also while others have them open. It reads the whole file. Must be called on a tokio runtime.
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
    /// [`OpenError`], if there is no store that can be read.
    pub async fn file_settings(path: impl AsRef<Path>) -> Result<FileSettings, OpenError> {
        let path = path.as_ref().to_path_buf();
        let failed = {
            let path = path.clone();
            move |source| OpenError::Io { path, source }
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
    let settings = file.reader().and_then(|reader| ask(&reader, sizes));
    settings.map_err(|error| file.failure(error).open_error())
}

fn ask(reader: &Connection, (file_bytes, log_bytes): (u64, u64)) -> rusqlite::Result<FileSettings> {
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

/// Damage may keep the check itself from coming to its end.
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
