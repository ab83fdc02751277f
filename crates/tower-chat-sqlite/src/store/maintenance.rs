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
    /// [`Durability::Normal`](crate::Durability::Normal) it also makes all acknowledged writes
    /// survive a power loss. There is no other reason to call it.
    ///
    /// # Errors
    ///
    /// If the store cannot be written; retryable, if a reader or another process has prevented it.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let Writing { checkpoints, queue, .. } = self.writing()?;
        let (checkpoints, queue) = (checkpoints.clone(), queue.clone());
        self.settle(None).await?;
        let empty = move |_: &Connection| checkpoints.empty(&queue);
        self.0.readers.read(CHECKPOINT, empty).await
    }

    /// Rewrites the whole file, so that it contains no deleted data, and truncates the log
    /// ([Deleting](crate#deleting)). The file becomes as small as possible. Conversations, open
    /// runs and revisions do not change.
    ///
    /// A vacuum needs space for two more files of the same size: the log, and a temporary file without a
    /// name (on Unix in `SQLITE_TMPDIR`, or else `TMPDIR`). Reads continue meanwhile. Writes of this
    /// store wait; writes of another process fail if the vacuum takes longer than their lock timeout. If
    /// the future is dropped, the vacuum may or may not take effect, and the log may still contain
    /// deleted data.
    ///
    /// # Errors
    ///
    /// If the store cannot be written; retryable, if the disk is full, or a reader or another
    /// process has prevented it. No data are lost then, and deleted data may still exist.
    pub async fn vacuum(&self) -> Result<(), StoreError> {
        let vacuumed =
            self.run_exclusively("vacuum the file", |connection| maintenance::vacuum(connection));
        let vacuumed = vacuumed.await;
        // After a failure the log contains the pages that the vacuum has written.
        let emptied = self.checkpoint().await;
        vacuumed.and(emptied)
    }

    /// Returns the errors that SQLite finds in the file; empty if the file is intact. This function reads
    /// the whole file.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn check_integrity(&self) -> Result<Vec<String>, StoreError> {
        self.settle(None).await?;
        self.0.readers.read("check the file", maintenance::integrity).await
    }

    /// Copies the store into another file while it is in use, and returns the size of the copy in
    /// bytes. [`Backup`] documents the content of the copy, and can replace an earlier one.
    ///
    /// # Errors
    ///
    /// [`BackupError`]; [`BackupError::Exists`], if the file exists.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<u64, BackupError> {
        Backup::of(self).write(to).await
    }

    /// Returns the number of rows that belong to no conversation.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn stray_rows(&self) -> Result<StrayRows, StoreError> {
        self.settle(None).await?;
        self.0.readers.read("look for stray rows", maintenance::stray).await
    }

    /// Deletes rows of the record of tool calls that belong to no conversation, and returns their
    /// number.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub async fn remove_stray_tools(&self) -> Result<u64, StoreError> {
        let remove = |connection: &mut _| maintenance::remove_stray_tools(connection);
        self.run_exclusively("remove stray rows", remove).await
    }
}
