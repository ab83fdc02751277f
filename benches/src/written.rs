//! Counts the bytes that a SQLite store writes to a disk, and its syncs.
//!
//! The bytes are measured separately from the times. The measurement begins with an empty
//! write-ahead log, and is too short for a checkpoint, so that the final size of the log is the
//! number of written bytes.
//!
//! The syncs are counted during the measurement of the times. A commit syncs the log once with
//! [`Durability::Full`], and not at all with [`Durability::Normal`]. A checkpoint syncs the log and
//! the file. After a checkpoint, SQLite restarts the log at its beginning and syncs the new header,
//! which contains the number of restarts so far. The checkpoints are counted with this number. If
//! the store needs several steps for a checkpoint, the count is slightly too small.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use tower_chat::BoxError;
use tower_chat_sqlite::{Durability, SqliteStore};

/// The number of syncs of a checkpoint, including the sync of the new header after the checkpoint.
const SYNCS_OF_CHECKPOINT: u64 = 3;

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

    /// Returns the number of restarts from the header. `None` if the log is empty.
    fn checkpoints(&self) -> Result<Option<u32>, BoxError> {
        // To close a file releases all POSIX locks of the process on it. SQLite has no locks on the
        // log file, so that this read does not release locks of the store.
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

/// The commits and checkpoints of a store so far. Two of these values give the syncs between them.
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
            (None, Some(_)) | (Some(_), None) => {
                return Err("the log was empty at the start or at the end of the count".into());
            }
        };
        Ok(of_commits + SYNCS_OF_CHECKPOINT * u64::from(checkpoints))
    }
}
