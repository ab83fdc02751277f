//! Counts the bytes that a SQLite store writes to a disk, and its syncs. The bytes are the growth
//! of the write-ahead log.
//!
//! The bytes are measured separately from the times. The measurement begins with an empty log, and
//! is too short for a checkpoint. The final size of the log is the number of written bytes: for
//! each page that a transaction has changed, the page and 24 bytes.
//!
//! The syncs are counted during the measurement of the times. A commit syncs the log once with
//! [`Durability::Full`], and not at all with [`Durability::Normal`]. A checkpoint syncs the log and
//! the file, and SQLite syncs the header of the log when SQLite restarts the log at its beginning.
//! The header contains the number of these restarts. If the checkpoint thread of the store needs
//! several steps for a checkpoint, this module counts slightly too few syncs.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use tower_chat::BoxError;
use tower_chat_sqlite::{Durability, SqliteStore};

/// The number of syncs of a checkpoint, including the sync of the new header after the checkpoint.
const SYNCS_OF_CHECKPOINT: u64 = 3;

/// The write-ahead log of a file.
#[derive(Debug)]
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn of(file: &Path) -> Self {
        let mut path = file.as_os_str().to_owned();
        path.push("-wal");
        Self(path.into())
    }

    /// Returns the size of the log, in bytes.
    pub(crate) fn bytes(&self) -> Result<u64, BoxError> {
        match std::fs::metadata(&self.0) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of checkpoints in the header. `None` if the log is empty.
    fn checkpoints(&self) -> Result<Option<u32>, BoxError> {
        // Closing a file releases all POSIX locks of the process on this file. SQLite has no locks
        // on the log file, so this read does not release locks of the store.
        let mut header = [0; 16];
        match File::open(&self.0).and_then(|mut log| log.read_exact(&mut header)) {
            Ok(()) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let [.., a, b, c, d] = header;
        Ok(Some(u32::from_be_bytes([a, b, c, d])))
    }
}

/// The number of commits and checkpoints of a store since a point in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Syncs {
    commits: u64,
    checkpoints: Option<u32>,
}

impl Syncs {
    /// Returns the current numbers.
    pub(crate) fn until_now(store: &SqliteStore, log: &Log) -> Result<Self, BoxError> {
        Ok(Self { commits: store.statistics().commits, checkpoints: log.checkpoints()? })
    }

    /// Returns the number of syncs between two points in time.
    pub(crate) fn since(self, then: Self, durability: Durability) -> Result<u64, BoxError> {
        let of_commits = match durability {
            Durability::Full => self.commits - then.commits,
            Durability::Normal => 0,
            _ => return Err("the syncs of this durability are unknown".into()),
        };
        let checkpoints = match (then.checkpoints, self.checkpoints) {
            (Some(then), Some(now)) => now.wrapping_sub(then),
            (None, None) => 0,
            (None, Some(_)) | (Some(_), None) => return Err("the log was emptied".into()),
        };
        Ok(of_commits + SYNCS_OF_CHECKPOINT * u64::from(checkpoints))
    }
}
