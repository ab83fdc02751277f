//! What is done with a whole file, and what repairs it.

use std::path::Path;

use rusqlite::Connection;
use tower_chat_core::{ConversationKey, RunId, store::StoreError};

use super::{SqliteStore, Writing};
use crate::{
    Backup, BackupError,
    checkpoints::CHECKPOINT,
    maintenance::{self, StrayRows},
};

impl SqliteStore {
    /// Moves everything from the write-ahead log into the file and empties the log, so that
    /// nothing deleted is left there ([Deleting](crate#deleting)). Otherwise there is no need to call
    /// it.
    ///
    /// # Errors
    ///
    /// If the store cannot be written; retryable, if a reader or another process was in the way.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let Writing { checkpoints, queue, .. } = self.writing()?;
        let (checkpoints, queue) = (checkpoints.clone(), queue.clone());
        self.settle(None).await?;
        let empty = move |_: &Connection| checkpoints.empty(&queue);
        self.0.readers.read(CHECKPOINT, empty).await
    }

    /// Writes the whole file anew, so that nothing is left of what was deleted, and empties the log
    /// ([Deleting](crate#deleting)). The file becomes as small as it can be; conversations, open runs
    /// and revisions stay as they are.
    ///
    /// It takes room for two more files as large: the log, and a temporary one without a name (on
    /// Unix in `SQLITE_TMPDIR`, or else `TMPDIR`), which goes when it is done. Readers go on. Writes of
    /// this store wait until it is done; those of another process fail if it takes longer than they
    /// wait for a lock. If the future is dropped, it is done or not done, and what was deleted may
    /// still be in the log.
    ///
    /// # Errors
    ///
    /// If the store cannot be written; retryable, if there is no room, or a reader or another
    /// process was in the way. Nothing is lost then, and what was deleted may still be there.
    pub async fn vacuum(&self) -> Result<(), StoreError> {
        let vacuumed =
            self.run_exclusively("vacuum the file", |connection| maintenance::vacuum(connection));
        let vacuumed = vacuumed.await;
        // Where it failed, what it wrote takes room there.
        let emptied = self.checkpoint().await;
        vacuumed.and(emptied)
    }

    /// What SQLite finds wrong with the file, in its words; nothing, if the file is sound. It reads
    /// all of it.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn check_integrity(&self) -> Result<Vec<String>, StoreError> {
        self.settle(None).await?;
        self.0.readers.read("check the file", maintenance::integrity).await
    }

    /// Copies the store into another file while it is in use, and says how many bytes that has.
    /// [`Backup`] says what is in it, and can replace an earlier one.
    ///
    /// # Errors
    ///
    /// [`BackupError`]; [`BackupError::Exists`], if there is a file.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<u64, BackupError> {
        Backup::of(self).write(to).await
    }

    /// Makes what the directory counts of a conversation anew: how many runs it had, and how many tool calls
    /// each of these runs asked for. Counts below zero become zero. For a repair: what is not named here,
    /// such as tokens, is in no message.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub async fn recount(
        &self,
        key: &ConversationKey,
        runs: u64,
        tool_calls: Vec<(RunId, u64)>,
    ) -> Result<(), StoreError> {
        let key = key.clone();
        let recount =
            move |connection: &mut _| maintenance::recount(connection, &key, runs, &tool_calls);
        self.run_exclusively("count the runs of a conversation", recount).await
    }

    /// How many rows belong to no conversation.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn stray_rows(&self) -> Result<StrayRows, StoreError> {
        self.settle(None).await?;
        self.0.readers.read("look for stray rows", maintenance::stray).await
    }

    /// Removes rows of the record of tool calls that belong to no conversation; says how many.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub async fn remove_stray_tools(&self) -> Result<u64, StoreError> {
        let remove = |connection: &mut _| maintenance::remove_stray_tools(connection);
        self.run_exclusively("remove stray rows", remove).await
    }
}
