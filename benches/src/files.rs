//! SQLite stores, each with a second copy of its file for a bare connection. The time of the store
//! is compared with the time in which the bare connection makes the same writes (the floor).

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tempfile::TempDir;
use tower_chat::{BoxError, ConversationKey, HistoryStore, Message};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{bare::Bare, rows::BareAppend, workload, written::Log};

/// A file with conversations of the same length, which is created once and copied for each
/// measurement.
#[derive(Debug)]
pub(crate) struct Template {
    path: PathBuf,
    _folder: TempDir,
}

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) store: SqliteStore,
    pub(crate) log: Log,
    pub(crate) floor: Arc<Mutex<Bare>>,
    pub(crate) floor_log: Log,
    path: PathBuf,
    _folder: TempDir,
}

pub(crate) const DURABILITIES: [(&str, Durability); 2] =
    [("full", Durability::Full), ("normal", Durability::Normal)];

/// The number of bytes that are written to each log before the measurement. SQLite checkpoints a
/// log of this size.
const BYTES_OF_LOG: usize = 6 << 20;

impl Template {
    /// Creates a file with this number of conversations, each with this number of messages.
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

    /// Copies the file twice, and opens one copy as a store. In both copies the log already has its
    /// full size and is reused, because commits to a growing log are slower.
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
    pub(crate) async fn make(
        durability: Durability,
        conversations: usize,
        history: usize,
    ) -> Result<Self, BoxError> {
        Template::make(conversations, history).await?.copies(durability).await
    }

    pub(crate) fn floor(&self) -> MutexGuard<'_, Bare> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties both logs. The later size of each log is the number of bytes written since this
    /// call.
    pub(crate) async fn empty_logs(&self) -> Result<(), BoxError> {
        self.store.checkpoint().await?;
        self.floor().empty_log()
    }

    /// Fails unless both files have the same number of rows, with the same total size.
    pub(crate) fn compare(&self) -> Result<(), BoxError> {
        let own = Bare::open(&self.path, Durability::Normal)?.content()?;
        let floor = self.floor().content()?;
        match own == floor {
            true => Ok(()),
            false => Err(format!("the floor has other rows: {floor:?} and not {own:?}").into()),
        }
    }
}

pub(crate) fn key(conversation: usize) -> ConversationKey {
    ConversationKey::new("benches", format!("conversation-{conversation}"))
}

/// Returns a folder on a real disk. The folder for temporary files may be in memory.
pub(crate) fn build_folder() -> Result<PathBuf, BoxError> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("the path of this program has no parent folder")?.to_path_buf())
}
