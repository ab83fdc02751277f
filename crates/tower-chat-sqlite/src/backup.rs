//! Backups: copies of a store that is in use.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rusqlite::{Connection, ErrorCode, OpenFlags, backup::StepResult};
use tokio::runtime::Handle;
use tower_chat_core::{BoxError, Classified};

use crate::{BackupError, SqliteStore, file::StoreFile};

/// Copies a store into another file while this or other processes use it.
///
/// The copy is a snapshot of the store at one point in time. A backup [of](Self::of) an open store
/// contains all writes that were submitted through this store before the backup began. The backup
/// blocks neither readers nor writers. During the backup SQLite cannot overwrite the beginning of
/// the write-ahead log, so that the log grows with every write.
///
/// A backup contains deleted data only if these data remain in the store's file
/// ([Deleting](crate#deleting)). A copy that was made before a deletion still contains the deleted
/// data.
///
/// The backup first writes a temporary file, whose name begins with a dot and ends with `.part`.
/// When this file is complete and synced to the disk, the backup renames it to the name of the
/// copy. If the process is killed before the rename, the temporary file remains. On Unix the copy
/// gets the permissions of the store's file. If the copy replaces a file, the copy gets only the
/// permissions that the store's file and the replaced file have in common.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let (path, copy) = (folder.path().join("chat.db"), folder.path().join("copy.db"));
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use tower_chat_sqlite::{Backup, SqliteStore};
///
/// let store = SqliteStore::open(&path).await?;
/// store.backup(&copy).await?;
/// // The next day, replace the last backup.
/// Backup::of(&store).replacing(true).write(&copy).await?;
/// assert!(SqliteStore::open(&copy).await?.check_integrity().await?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Backup {
    source: Source,
    replacing: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Store(SqliteStore),
    File(PathBuf),
}

impl Backup {
    /// Creates a backup of an open store.
    pub fn of(store: &SqliteStore) -> Self {
        Self { source: Source::Store(store.clone()), replacing: false }
    }

    /// Creates a backup of a file, which this and other processes may have open. The backup does
    /// not migrate an older schema, whereas opening the file as a store migrates it. Use this
    /// function to copy a file before its migration.
    pub fn of_file(path: impl AsRef<Path>) -> Self {
        Self { source: Source::File(path.as_ref().to_path_buf()), replacing: false }
    }

    /// Sets whether the copy may replace an existing file (default: false).
    #[must_use]
    pub fn replacing(mut self, replacing: bool) -> Self {
        self.replacing = replacing;
        self
    }

    /// Writes the copy, and returns its size in bytes. Must be called on a tokio runtime. If the
    /// future is dropped, the backup is either completed, or stopped without a copy.
    ///
    /// # Errors
    ///
    /// Returns a [`BackupError`], whose documentation describes the state of the files after the
    /// error.
    pub async fn write(self, to: impl AsRef<Path>) -> Result<u64, BackupError> {
        let to = to.as_ref().to_path_buf();
        let failed = {
            let path = to.clone();
            move |cause: BoxError| BackupError::Io { path, source: Classified::permanent(cause) }
        };
        let runtime = match Handle::try_current() {
            Ok(runtime) => runtime,
            Err(error) => return Err(failed(error.into())),
        };
        if let Source::Store(store) = &self.source {
            store.settle(None).await.map_err(BackupError::Store)?;
        }
        let waiting = GivesUp(Arc::default());
        let is_given_up = waiting.0.clone();
        let copied = runtime.spawn_blocking(move || self.write_here(&to, &is_given_up)).await;
        copied.unwrap_or_else(|error| Err(failed(error.into())))
    }

    fn write_here(self, to: &Path, is_given_up: &AtomicBool) -> Result<u64, BackupError> {
        let file = match self.source {
            Source::Store(store) => store.file().clone(),
            Source::File(path) => StoreFile::of_any_version(&path).map_err(BackupError::Open)?,
        };
        let target = Target::new(to, self.replacing)?;
        target.check_is_not_of(&file)?;
        let part = Part::create(&target)?;
        copy(&file, &target, &part, is_given_up)?;
        let bytes = part.sync(&target, &file).map_err(|error| target.failed(error))?;
        if is_given_up.load(Ordering::Relaxed) {
            return Err(target.failed(io::ErrorKind::Interrupted.into()));
        }
        target.publish(&part)?;
        Ok(bytes)
    }
}

/// Copies a snapshot of the store's file to the temporary file.
fn copy(
    file: &StoreFile,
    target: &Target,
    part: &Part,
    is_given_up: &AtomicBool,
) -> Result<(), BackupError> {
    const PAGES: i32 = 256;
    const COPY: &str = "copy the store";
    let unreadable = |error| BackupError::Store(file.failure(error).store_error(COPY));
    let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
        // The copy is on the full disk, because this function writes no other file.
        Some(ErrorCode::DiskFull) => target.full(error.into()),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::DatabaseBusy) => {
            unreadable(error)
        }
        Some(_) | None => {
            BackupError::Io { path: target.path.clone(), source: Classified::permanent(error) }
        }
    };
    file.check_path().map_err(|failure| BackupError::Store(failure.store_error(COPY)))?;
    let source = file.reader().map_err(unreadable)?;
    // Without a read transaction, SQLite would restart the copy after each write of another
    // process.
    let snapshot = source.unchecked_transaction().map_err(unreadable)?;
    snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(unreadable)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(&part.path, flags).map_err(failed)?;
    // The copy needs no journal and no syncs while it is written: an incomplete copy is deleted,
    // and a complete copy is synced.
    let unsafe_and_fast = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF";
    copy.execute_batch(unsafe_and_fast).map_err(failed)?;
    let backup = rusqlite::backup::Backup::new(&snapshot, &mut copy).map_err(failed)?;
    loop {
        if is_given_up.load(Ordering::Relaxed) {
            return Err(target.failed(io::ErrorKind::Interrupted.into()));
        }
        match backup.step(PAGES).map_err(failed)? {
            StepResult::Done => break,
            StepResult::More => {}
            _ => return Err(target.failed(io::ErrorKind::ResourceBusy.into())),
        }
    }
    drop(backup);
    file.check_unwritten().map_err(|failure| BackupError::Store(failure.store_error(COPY)))?;
    copy.close().map_err(|(_, error)| failed(error))
}

/// The path of the copy, and whether the copy may replace an existing file.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    folder: PathBuf,
    name: OsString,
    replacing: bool,
}

impl Target {
    /// Returns the target if the copy may be written to the path, and an error otherwise.
    fn new(path: &Path, replacing: bool) -> Result<Self, BackupError> {
        let failed = |error: io::Error| BackupError::Io {
            path: path.into(),
            source: Classified::permanent(error),
        };
        let path = std::path::absolute(path).map_err(failed)?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let (folder, name) = (folder.to_path_buf(), name.to_os_string());
        if !folder.is_dir() {
            return Err(BackupError::NoFolder { path });
        }
        let target = Self { path, folder, name, replacing };
        target.check()?;
        Ok(target)
    }

    /// Refuses a path if a folder, or a file that must not be replaced, exists there, or if a log
    /// or journal exists next to it.
    fn check(&self) -> Result<(), BackupError> {
        match fs::symlink_metadata(&self.path) {
            Ok(_) if !self.replacing => {
                return Err(BackupError::Exists { path: self.path.clone() });
            }
            Ok(found) if found.is_dir() => {
                return Err(self.failed(io::ErrorKind::IsADirectory.into()));
            }
            Ok(_) | Err(_) => {}
        }
        self.check_log("-journal")?;
        self.remove_empty_log();
        self.check_log("-wal")
    }

    /// Refuses a copy that would replace the store's file, or the log, the log's index or the
    /// journal of any database.
    fn check_is_not_of(&self, file: &StoreFile) -> Result<(), BackupError> {
        let refused =
            |database: PathBuf| Err(BackupError::OfADatabase { path: self.path.clone(), database });
        if file.is_at(&self.path) {
            return refused(self.path.clone());
        }
        let name = self.name.to_str().unwrap_or_default();
        let database = ["-wal", "-shm", "-journal"].iter().find_map(|end| name.strip_suffix(end));
        match database.map(|database| self.folder.join(database)) {
            Some(database) if fs::symlink_metadata(&database).is_ok() => refused(database),
            _ => Ok(()),
        }
    }

    /// Refuses a path if a log or journal exists whose name is this path with `ending` appended,
    /// because SQLite would apply it to the copy.
    fn check_log(&self, ending: &str) -> Result<(), BackupError> {
        let log = self.beside(ending);
        match fs::symlink_metadata(&log) {
            Ok(_) => Err(BackupError::InUse { path: self.path.clone(), log }),
            Err(_) => Ok(()),
        }
    }

    /// Lets SQLite remove an empty log next to the path of the copy, for example that of a reading
    /// process that was killed. The log remains if another process has the database open.
    fn remove_empty_log(&self) {
        if fs::metadata(self.beside("-wal")).is_ok_and(|log| log.len() == 0) {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            // If the database cannot be opened, its log remains, and the caller refuses the path.
            let _ = Connection::open_with_flags(&self.path, flags).and_then(|connection| {
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
            });
        }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.name.clone();
        name.push(ending);
        self.folder.join(name)
    }

    /// Renames the complete copy to its final name, and syncs the folder, so that the name survives
    /// a power loss.
    fn publish(&self, part: &Part) -> Result<(), BackupError> {
        self.check()?;
        let published = self.name(part).and_then(|()| sync_folder(&self.folder));
        published.map_err(|error| self.failed(error))
    }

    /// Renames the copy to its final name. Fails if the copy must not replace a file and another
    /// process has created one since the check. On a file system without hard links, the copy
    /// replaces such a file.
    fn name(&self, part: &Part) -> io::Result<()> {
        let rename = || fs::rename(&part.path, &self.path);
        if self.replacing {
            return rename();
        }
        // Unlike a rename, creating a hard link never replaces a file.
        match fs::hard_link(&part.path, &self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Err(_) => rename(),
            Ok(()) => Ok(()),
        }
    }

    fn failed(&self, error: io::Error) -> BackupError {
        let path = self.path.clone();
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => self.full(error.into()),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                BackupError::ReadOnly { path, source: Classified::permanent(error) }
            }
            io::ErrorKind::AlreadyExists => BackupError::Exists { path },
            _ => BackupError::Io { path, source: Classified::permanent(error) },
        }
    }

    fn full(&self, cause: BoxError) -> BackupError {
        let source = Classified::retryable(cause);
        BackupError::StorageFull { path: self.path.clone(), source }
    }
}

/// The copy under its temporary name. Dropping this value removes the file.
#[derive(Debug)]
struct Part {
    path: PathBuf,
}

impl Part {
    fn create(target: &Target) -> Result<Self, BackupError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        // Only the owner may read the file, because it will contain conversations.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let mut name = OsString::from(".");
            name.push(&target.name);
            name.push(format!(".{}-{number}.part", std::process::id()));
            let path = target.folder.join(name);
            match options.open(&path) {
                Ok(_) => return Ok(Self { path }),
                // An earlier process with the same id was killed before it could remove this file.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(target.failed(error)),
            }
        }
    }

    /// Sets the permissions of the copy, syncs the copy to the disk, and returns its size in bytes.
    fn sync(&self, target: &Target, store: &StoreFile) -> io::Result<u64> {
        let file = fs::OpenOptions::new().write(true).open(&self.path)?;
        // The copy must have no more permissions than the store, or than the file that it replaces.
        #[cfg(unix)]
        if let Some(permissions) = store.permissions() {
            use std::os::unix::fs::PermissionsExt;
            let replaced = fs::metadata(&target.path).map(|found| found.permissions().mode());
            let mode = permissions.mode() & replaced.unwrap_or(0o666) & 0o666;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        let _ = (target, store);
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The removal fails if the file has been renamed, and this error is ignored.
        let _ = fs::remove_file(&self.path);
    }
}

/// Syncs a folder, so that the names of its files survive a power loss. Windows syncs the names
/// with the files.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Sets the flag that stops the copying thread when the future of [`Backup::write`] is dropped.
#[derive(Debug)]
struct GivesUp(Arc<AtomicBool>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_overwrites_a_file_created_during_the_copy_only_with_replacing() {
        for (replacing, expected) in [(false, "another file"), (true, "the copy")] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("copy.db");
            let target = Target::new(&path, replacing).unwrap();
            let part = Part::create(&target).unwrap();
            fs::write(&part.path, "the copy").unwrap();
            fs::write(&path, "another file").unwrap();
            let named = target.name(&part).map_err(|error| error.kind());
            let refused = Err(io::ErrorKind::AlreadyExists);
            assert_eq!(named, if replacing { Ok(()) } else { refused });
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
    }
}
