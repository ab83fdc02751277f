//! Stores in files, and a copy of each for the floor.

use std::path::PathBuf;

use tempfile::TempDir;
use tower_chat::core::{BoxError, ConversationKey, store::HistoryStore};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{bare::Bare, workload};

/// A store with conversations of one length, and a bare connection to an equal file beside it.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) store: SqliteStore,
    pub(crate) bare: Bare,
    /// Deleted when dropped.
    pub(crate) folder: TempDir,
}

/// The durabilities with their names in the output.
pub(crate) const DURABILITIES: [(&str, Durability); 2] =
    [("full", Durability::Full), ("normal", Durability::Normal)];

impl Files {
    /// Makes both files, with so many conversations of so many messages.
    pub(crate) async fn make(
        durability: Durability,
        conversations: usize,
        history: usize,
    ) -> Result<Self, BoxError> {
        let folder = tempfile::tempdir_in(build_folder()?)?;
        let path = folder.path().join("store.db");
        let open = SqliteStore::options().durability(durability);
        let store = open.clone().open(&path).await?;
        if history > 0 {
            let messages = workload::stored_messages(history);
            for conversation in 0..conversations {
                let write = workload::first_write(&key(conversation), messages.clone());
                store.append(store.reserve().await?, vec![write]).await?;
            }
        }
        store.close().await?;
        let floor = folder.path().join("floor.db");
        std::fs::copy(&path, &floor)?;
        let store = open.open(&path).await?;
        let bare = Bare::open(&floor, durability)?;
        Ok(Self { store, bare, folder })
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
