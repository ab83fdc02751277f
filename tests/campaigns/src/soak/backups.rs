//! Compares backups that were made during runs with the models of the conversations.

use std::{collections::HashMap, fs, path::PathBuf};

use tower_chat::HistoryStore;
use tower_chat_sqlite::SqliteStore;

use crate::conversations::{ConversationModel, ReadAt, chain, key};

/// A backup that was made during runs.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) file: PathBuf,
    /// The last acknowledged run of each conversation when the backup began.
    pub(super) acknowledged: HashMap<u32, Option<u32>>,
    /// The number of a request for measurements, sent after the backup. When both processes have
    /// answered it, they have reported all events that the backup can contain.
    pub(super) after: Option<u64>,
}

impl Pending {
    pub(super) fn new(file: PathBuf, models: &[ConversationModel]) -> Self {
        let acknowledged =
            models.iter().map(|model| (model.number, model.last_acknowledged())).collect();
        Self { file, acknowledged, after: None }
    }

    pub(super) async fn check(&self, models: &[ConversationModel]) -> Result<usize, String> {
        let store = SqliteStore::options().with_read_only(true).with_create(false);
        let store = store.open(&self.file).await.map_err(|error| chain(&error))?;
        let found = store.check_integrity().await.map_err(|error| chain(&error))?;
        if !found.is_empty() {
            return Err(format!("integrity_check: {found:?}"));
        }
        let mut messages = 0;
        for model in models {
            let key = key(model.number);
            let history = store.load(&key).await.map_err(|error| chain(&error))?;
            let bound = self.acknowledged.get(&model.number).copied().flatten();
            model
                .inspect(&history, None, ReadAt::Since(bound))
                .map_err(|what| format!("conversation {key}: {what}"))?;
            messages += history.messages.len();
        }
        store.close().await.map_err(|error| chain(&error))?;
        let folder = self.file.parent().unwrap_or(&self.file);
        fs::remove_dir_all(folder).map_err(|error| chain(&error))?;
        Ok(messages)
    }
}
