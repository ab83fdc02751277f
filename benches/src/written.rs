//! What is written to a disk: the growth of SQLite's write-ahead log, and how often it is synced.
//!
//! Bytes are counted apart from the times, from an empty log that no checkpoint empties meanwhile:
//! its size afterwards is what was written to it, a page and 24 bytes for each page that a
//! transaction changed.
//!
//! Syncs are counted while the times are taken. A commit syncs the log once with
//! [`Durability::Full`], and not with [`Durability::Normal`]. A checkpoint syncs the log and the
//! file, and the header of the log is synced when it is begun again; its header counts how often
//! that was. A log that the store's thread carries over in several parts is synced a little more
//! often than this says.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use tower_chat::BoxError;
use tower_chat_sqlite::{Durability, SqliteStore};

/// Syncs of a checkpoint, and of the new header after it.
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

    /// How large it is.
    pub(crate) fn bytes(&self) -> Result<u64, BoxError> {
        match std::fs::metadata(&self.0) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The number of checkpoints that its header has, `None` where the log is empty.
    fn checkpoints(&self) -> Result<Option<u32>, BoxError> {
        // SQLite holds no locks on this file, so that closing it here frees none.
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

/// How often a store has had the disk sync, counted from some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Syncs {
    commits: u64,
    checkpoints: Option<u32>,
}

impl Syncs {
    /// What a store has done up to now.
    pub(crate) fn until_now(store: &SqliteStore, log: &Log) -> Result<Self, BoxError> {
        Ok(Self { commits: store.statistics().commits, checkpoints: log.checkpoints()? })
    }

    /// How many there were since then.
    pub(crate) fn since(self, then: Self, durability: Durability) -> Result<u64, BoxError> {
        let of_commits = match durability {
            Durability::Full => self.commits - then.commits,
            Durability::Normal => 0,
            _ => return Err("a durability whose syncs are not known".into()),
        };
        let checkpoints = match (then.checkpoints, self.checkpoints) {
            (Some(then), Some(now)) => now.wrapping_sub(then),
            (None, None) => 0,
            (None, Some(_)) | (Some(_), None) => return Err("the log was emptied".into()),
        };
        Ok(of_commits + SYNCS_OF_CHECKPOINT * u64::from(checkpoints))
    }
}
