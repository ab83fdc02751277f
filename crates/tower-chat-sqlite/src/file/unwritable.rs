//! Reading stores in folders that the process must not write.
//!
//! To read a database in WAL mode, SQLite creates the log and the log's index in the folder of the
//! database. If the process has no permission to create files there, `immutable=1` makes SQLite
//! read only the database file. The result is correct as long as the log is empty and no other
//! program writes to the file. Opening the store checks that the log is empty, and each read checks
//! afterwards that no other program has written.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rusqlite::ErrorCode;

use super::StoreFile;
use crate::{FileChange, OpenError, failure::Failure, schema};

/// The size in bytes and the modification time of the file when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState {
    size: u64,
    modified: Option<SystemTime>,
}

impl FileState {
    fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { size: metadata.len(), modified: metadata.modified().ok() })
    }
}

impl StoreFile {
    /// Makes readers open the file without a log, if SQLite cannot create the log and no log with
    /// content exists.
    pub(super) fn select_reader(&mut self) -> Result<(), OpenError> {
        let Err(error) = self.reader().and_then(|mut reader| schema::content(&mut reader)) else {
            return Ok(());
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {}
            // The next step of opening the store reports this error.
            Some(_) | None => return Ok(()),
        }
        if let Some(log) = self.log_with_content() {
            return Err(OpenError::UnreadLog { path: self.path_buf(), log });
        }
        self.state_without_log = FileState::at(&self.path);
        Ok(())
    }

    /// Fails if another program has begun to write to a file that is read without its log.
    pub(crate) fn check_unwritten(&self) -> Result<(), Failure> {
        match self.state_without_log {
            Some(before)
                if FileState::at(&self.path) != Some(before)
                    || self.log_with_content().is_some() =>
            {
                Err(self.changed(FileChange::Written))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the path of the write-ahead log, or of a journal, if it has content.
    pub(super) fn log_with_content(&self) -> Option<PathBuf> {
        let mut journal = self.path.as_os_str().to_owned();
        journal.push("-journal");
        [self.log.to_path_buf(), journal.into()]
            .into_iter()
            .find(|log| fs::metadata(log).is_ok_and(|found| found.len() > 0))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tower_chat_core::{
        ConversationKey, Message, MessageId, RunId,
        store::{HistoryStore, Revision, author::Write},
    };

    use super::*;
    use crate::{Durability, SqliteStore};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_is_read_without_its_log_only_while_no_process_writes_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        SqliteStore::open(&path).await.unwrap().close().await.unwrap();
        let opened = || {
            let mut file = StoreFile::at(path.as_path().into(), Durability::Full);
            file.state_without_log = FileState::at(&path);
            file
        };
        let file = opened();
        file.reader().and_then(|mut reader| schema::content(&mut reader)).unwrap();
        file.check_unwritten().unwrap();

        let store = SqliteStore::open(&path).await.unwrap();
        let first = MessageId { run: RunId::new(), index: 0 };
        let key = ConversationKey::new("alice", "chat");
        let write = Write::new(key, first, Revision::ABSENT, [Message::user("hi").into()]);
        store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
        let failure = opened().check_unwritten().unwrap_err();
        let in_log = std::error::Error::source(&failure).unwrap().to_string();
        assert!(in_log.contains("has written to it"), "{in_log}");
        store.close().await.unwrap();
        assert!(file.log_with_content().is_none(), "the log was carried over");
        assert!(file.check_unwritten().is_err(), "the file is another one");
        opened().check_unwritten().unwrap();
    }
}
