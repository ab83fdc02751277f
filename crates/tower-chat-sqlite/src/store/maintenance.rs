//! Operations on the whole file, and repairs.

use std::path::Path;

use rusqlite::Connection;
use tower_chat_core::store::StoreError;

use super::{SqliteStore, Writing};
use crate::{
    Backup, BackupError,
    checkpoints::CHECKPOINT,
    maintenance::{self, StrayRows},
};

impl SqliteStore {
    /// Copies the write-ahead log into the file and truncates the log, so that the log contains no
    /// deleted data ([Deleting](crate#deleting)). With
    /// [`Durability::Normal`](crate::Durability::Normal), this function also makes all acknowledged
    /// writes survive a power loss. The store bounds the size of the log without this function.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be written. The error is retryable if a reader or
    /// another process has prevented the checkpoint.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let Writing { checkpoints, queue, .. } = self.writing()?;
        let (checkpoints, queue) = (checkpoints.clone(), queue.clone());
        self.settle(None).await?;
        let empty = move |_: &Connection| checkpoints.empty(&queue);
        self.0.readers.read(CHECKPOINT, empty).await
    }

    /// Rewrites the whole file, so that it contains no deleted data, and truncates the log
    /// ([Deleting](crate#deleting)). The file becomes as small as possible. No conversation and no
    /// revision changes.
    ///
    /// A vacuum temporarily needs additional space of twice the size of the file: for the log, and
    /// for an unnamed temporary file (on Unix in `SQLITE_TMPDIR`, or in `TMPDIR` if that is not
    /// set). Reads continue during the vacuum. Writes through this store wait. Writes of another
    /// process fail if the vacuum takes longer than the lock timeout of that process. If the future
    /// is dropped, the vacuum may or may not be executed, and the log may still contain deleted
    /// data.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be written. The error is retryable if the disk is full,
    /// or if a reader or another process has prevented the vacuum. After an error no data are lost,
    /// but the file or its log may still contain deleted data.
    pub async fn vacuum(&self) -> Result<(), StoreError> {
        let vacuumed =
            self.run_exclusively("vacuum the file", |connection| maintenance::vacuum(connection));
        let vacuumed = vacuumed.await;
        // After a failure, the log contains the pages that the vacuum has written.
        let emptied = self.checkpoint().await;
        vacuumed.and(emptied)
    }

    /// Returns the errors that SQLite finds in the file; empty if the file is intact. This function
    /// reads the whole file.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub async fn check_integrity(&self) -> Result<Vec<String>, StoreError> {
        self.settle(None).await?;
        self.0.readers.read("check the file", maintenance::integrity).await
    }

    /// Copies the store into another file while it is in use, and returns the size of the copy in
    /// bytes. [`Backup`] documents the content of the copy, and has an option to replace an
    /// existing file.
    ///
    /// # Errors
    ///
    /// Returns a [`BackupError`], for example [`BackupError::Exists`] if a file exists at the path.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<u64, BackupError> {
        Backup::of(self).write(to).await
    }

    /// Returns the number of rows that belong to no conversation.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub async fn stray_rows(&self) -> Result<StrayRows, StoreError> {
        self.settle(None).await?;
        self.0.readers.read("look for stray rows", maintenance::stray).await
    }

    /// Deletes the rows of recorded tool calls that belong to no conversation, and returns the
    /// number of deleted rows.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be written.
    pub async fn remove_stray_tools(&self) -> Result<u64, StoreError> {
        let remove = |connection: &mut _| maintenance::remove_stray_tools(connection);
        self.run_exclusively("remove stray rows", remove).await
    }
}
