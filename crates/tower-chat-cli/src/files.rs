//! Checks the paths of the files that commands write, and sets the permissions of these files.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use crate::{error::CliError, store::StoreLocation};

/// The suffixes of the files that SQLite creates in the folder of a database.
const BESIDE_A_DATABASE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The maximum number of symbolic links that are followed.
const MAX_LINKS: usize = 40;

/// A file that a command reads or writes, and the option that names the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedFile<'a> {
    pub(crate) option: &'static str,
    pub(crate) path: &'a Path,
}

impl<'a> NamedFile<'a> {
    pub(crate) fn new(option: &'static str, path: &'a Path) -> Self {
        Self { option, path }
    }
}

/// Checks that a command does not overwrite a file that it also uses for another purpose. Each
/// written file must differ from:
///
/// - the other written files, and the files that the command reads;
/// - the files of its stores, and the files that SQLite creates for a database.
///
/// Two paths are equal if they refer to the same file.
///
/// # Errors
///
/// Fails with [`CliError::WritesOver`] if two of these files are the same.
pub(crate) fn check_written(
    written: &[NamedFile<'_>],
    read: &[NamedFile<'_>],
    stores: &[&StoreLocation],
) -> Result<(), CliError> {
    let store_files: Vec<(String, FileIdentity)> =
        stores.iter().flat_map(|store| files_of(store)).collect();
    for (index, file) in written.iter().enumerate() {
        let identity = FileIdentity::of(file.path);
        let refused = |what: String| {
            let (option, path) = (file.option, file.path.to_owned());
            Err(CliError::WritesOver { option, path, what })
        };
        if let Some((what, _)) = store_files.iter().find(|(_, other)| identity.is(other)) {
            return refused(what.clone());
        }
        let others = written.iter().skip(index.saturating_add(1)).chain(read);
        if let Some(other) =
            others.into_iter().find(|other| identity.is(&FileIdentity::of(other.path)))
        {
            return refused(format!("the file of {}", other.option));
        }
        if let Some(database) = identity.database() {
            return refused(format!("a part of the database `{}`", database.display()));
        }
    }
    Ok(())
}

/// Identifies the file to which a path refers, whether or not the file exists.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileIdentity {
    /// The absolute path without symbolic links.
    path: PathBuf,
    /// The device number and the inode number, which hard links to one file share.
    file: Option<(u64, u64)>,
}

impl FileIdentity {
    fn of(path: &Path) -> Self {
        let path = without_links(path);
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(&path).ok().map(|found| (found.dev(), found.ino()))
        };
        #[cfg(not(unix))]
        let file = None;
        Self { path, file }
    }

    fn is(&self, other: &Self) -> bool {
        self.path == other.path || (self.file.is_some() && self.file == other.file)
    }

    /// Returns the path of an existing database for which SQLite would create a file with this
    /// name.
    fn database(&self) -> Option<PathBuf> {
        let name = self.path.file_name()?.to_str()?;
        let database = BESIDE_A_DATABASE.iter().find_map(|ending| name.strip_suffix(ending))?;
        let database = self.path.with_file_name(database);
        fs::symlink_metadata(&database).is_ok().then_some(database)
    }
}

/// Returns the files of a store, each with a description for error messages.
fn files_of(store: &StoreLocation) -> Vec<(String, FileIdentity)> {
    let StoreLocation::Sqlite(path) = store else { return Vec::new() };
    let identity = FileIdentity::of(path);
    // For a symbolic link, SQLite derives the names of these files from the target of the link.
    let mut beside: Vec<(String, FileIdentity)> = [path, &identity.path]
        .into_iter()
        .flat_map(|path| BESIDE_A_DATABASE.map(|ending| with_ending(path, ending)))
        .map(|path| ("a part of the store".to_owned(), FileIdentity::of(&path)))
        .collect();
    beside.push(("the store".to_owned(), identity));
    beside
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Returns the absolute path, without symbolic links, of the file that opening or creating `path`
/// would use. The file need not exist.
fn without_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if let Ok(found) = fs::canonicalize(&path) {
            return found;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok();
        if let (Some(folder), Some(name)) = (folder, path.file_name()) {
            path = folder.join(name);
        }
        match fs::read_link(&path) {
            // The path is a symbolic link whose target does not exist.
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => break,
        }
    }
    std::path::absolute(&path).unwrap_or(path)
}

/// The permissions of a file that is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMode(u32);

impl FileMode {
    /// Only the owner may read and write the file.
    const PRIVATE: Self = Self(0o600);

    /// Returns the permissions for a file with data of a store: those of the store's file, or those
    /// of a private file if the store has no file.
    pub(crate) fn of(store: &StoreLocation) -> Self {
        #[cfg(unix)]
        if let StoreLocation::Sqlite(path) = store
            && let Ok(found) = fs::metadata(path)
        {
            use std::os::unix::fs::PermissionsExt;
            return Self(found.permissions().mode() & 0o666);
        }
        let _ = store;
        Self::PRIVATE
    }

    /// Creates a file with these permissions. Fails if the file exists.
    pub(crate) fn create_new(self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, Self::PRIVATE.0);
        let file = options.open(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The umask of the process may have removed permissions from the created file.
            file.set_permissions(fs::Permissions::from_mode(self.0))?;
        }
        Ok(file)
    }

    /// Creates an empty file with these permissions, unless the file exists.
    pub(crate) fn create_missing(self, path: &Path) -> io::Result<()> {
        match self.create_new(&without_links(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map(drop),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_recognised_under_every_path_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        symlink(folder.path(), at("sub/up")).unwrap();
        fs::write(at("chat.db"), "").unwrap();
        symlink(at("chat.db"), at("link.db")).unwrap();
        fs::hard_link(at("chat.db"), at("hard.db")).unwrap();
        symlink("out.jsonl", at("link.jsonl")).unwrap();
        symlink(at("link.jsonl"), at("sub/link.jsonl")).unwrap();
        fs::write(at("other.db"), "").unwrap();
        let store = StoreLocation::Sqlite(at("link.db"));
        let check = |to: &str, receipt: &str| {
            let (to, receipt) = (at(to), at(receipt));
            let written = [NamedFile::new("--to", &to), NamedFile::new("--receipt", &receipt)];
            match check_written(&written, &[], &[&store]) {
                Ok(()) => String::new(),
                Err(CliError::WritesOver { option, what, .. }) => format!("{option}: {what}"),
                Err(other) => panic!("{other}"),
            }
        };
        let same = "--to: the file of --receipt";
        let part = "--to: a part of the store";
        for (to, receipt, expected) in [
            ("out.jsonl", "receipt", ""),
            ("out.jsonl", "out.jsonl", same),
            ("out.jsonl", "sub/../out.jsonl", same),
            ("sub/up/out.jsonl", "out.jsonl", same),
            ("link.jsonl", "out.jsonl", same),
            ("sub/link.jsonl", "out.jsonl", same),
            ("chat.db", "receipt", "--to: the store"),
            ("link.db", "receipt", "--to: the store"),
            ("hard.db", "receipt", "--to: the store"),
            ("out.jsonl", "hard.db", "--receipt: the store"),
            ("chat.db-wal", "receipt", part),
            ("link.db-wal", "receipt", part),
            ("chat.db-shm", "receipt", part),
            ("sub/up/chat.db-journal", "receipt", part),
            ("missing.db-wal", "receipt", ""),
        ] {
            assert_eq!(check(to, receipt), expected, "{to} {receipt}");
        }
        assert!(check("other.db-wal", "r").starts_with("--to: a part of the database"));
        assert!(check("o", "hard.db-wal").starts_with("--receipt: a part of the database"));
    }
}
