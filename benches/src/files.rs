//! Stores in files, and a copy of each for the floor.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tempfile::TempDir;
use tower_chat::{BoxError, ConversationKey, Message, store::HistoryStore};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{bare::Bare, rows::BareAppend, workload, written::Log};

/// A file with conversations of one length, made once and copied for each measurement.
#[derive(Debug)]
pub(crate) struct Template {
    path: PathBuf,
    /// Deleted when dropped.
    _folder: TempDir,
}

/// A store, and a bare connection to an equal file beside it.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) store: SqliteStore,
    pub(crate) log: Log,
    pub(crate) floor: Arc<Mutex<Bare>>,
    pub(crate) floor_log: Log,
    path: PathBuf,
    /// Deleted when dropped.
    _folder: TempDir,
}

/// The durabilities with their names in the output.
pub(crate) const DURABILITIES: [(&str, Durability); 2] =
    [("full", Durability::Full), ("normal", Durability::Normal)];

/// More than SQLite leaves in a log before it begins it again.
const BYTES_OF_LOG: usize = 6 << 20;

impl Template {
    /// Makes a file with so many conversations of so many messages.
    pub(crate) async fn make(conversations: usize, history: usize) -> Result<Self, BoxError> {
        let folder = tempfile::tempdir_in(build_folder()?)?;
        let path = folder.path().join("template.db");
        let store = SqliteStore::options().with_durability(Durability::Normal).open(&path).await?;
        if history > 0 {
            let messages = workload::stored_messages(history);
            for conversation in 0..conversations {
                let write = workload::first_write(&key(conversation), messages.clone());
                store.append(store.reserve().await?, vec![write]).await?;
            }
        }
        store.close().await?;
        Ok(Self { path, _folder: folder })
    }

    /// Makes two copies of it, and opens one as a store. Both have a log that is reused, as in a
    /// store that has been in use for a while: one that grows costs more per commit.
    pub(crate) async fn copies(&self, durability: Durability) -> Result<Files, BoxError> {
        let folder = tempfile::tempdir_in(build_folder()?)?;
        let copy = |name| {
            let path = folder.path().join(name);
            std::fs::copy(&self.path, &path)?;
            Ok::<_, BoxError>(path)
        };
        let (path, floor_path) = (copy("store.db")?, copy("floor.db")?);
        let store = SqliteStore::options().with_durability(durability).open(&path).await?;
        let floor = Bare::open(&floor_path, durability)?;
        let messages = vec![Message::user("x".repeat(BYTES_OF_LOG)).into()];
        let key = ConversationKey::new("benches", "log");
        floor.append(&mut floor.conversation(&key)?, &BareAppend::of_messages(&messages))?;
        let write = workload::first_write(&key, messages);
        store.append(store.reserve().await?, vec![write]).await?;
        let (log, floor_log) = (Log::of(&path), Log::of(&floor_path));
        let floor = Arc::new(Mutex::new(floor));
        Ok(Files { store, log, floor, floor_log, path, _folder: folder })
    }
}

impl Files {
    /// Makes a file with so many conversations of so many messages, and both copies.
    pub(crate) async fn make(
        durability: Durability,
        conversations: usize,
        history: usize,
    ) -> Result<Self, BoxError> {
        Template::make(conversations, history).await?.copies(durability).await
    }

    /// The bare connection.
    pub(crate) fn floor(&self) -> MutexGuard<'_, Bare> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties both logs, so that their sizes are what is written from now on.
    pub(crate) async fn empty_logs(&self) -> Result<(), BoxError> {
        self.store.checkpoint().await?;
        self.floor().empty_log()
    }

    /// Fails unless the floor has stored the same rows.
    pub(crate) fn compare(&self) -> Result<(), BoxError> {
        let own = Bare::open(&self.path, Durability::Normal)?.content()?;
        let floor = self.floor().content()?;
        match own == floor {
            true => Ok(()),
            false => Err(format!("the floor has other rows: {floor:?} and not {own:?}").into()),
        }
    }
}

/// The key of a conversation by its number.
pub(crate) fn key(conversation: usize) -> ConversationKey {
    ConversationKey::new("benches", format!("conversation-{conversation}"))
}

/// A folder on a real disk: the folder for temporary files may be in memory.
pub(crate) fn build_folder() -> Result<PathBuf, BoxError> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("the program stands in no folder")?.to_path_buf())
}
