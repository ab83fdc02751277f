//! Where histories are kept.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use tower_chat::{ConversationKey, MemoryStore, store::HistoryStore};
use tower_chat_sqlite::{OpenError, SqliteStore};

use crate::error::CliError;

/// A store, as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    /// In this process's memory, and gone with it.
    Memory,
    /// In a SQLite file.
    Sqlite(PathBuf),
}

/// A text names no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreLocationError {
    #[error("sqlite: needs the path of a file, as in sqlite:chat.db")]
    NoPath,
    #[error("it is neither sqlite:PATH nor memory:")]
    Unknown,
}

impl FromStr for StoreLocation {
    type Err = StoreLocationError;

    fn from_str(text: &str) -> Result<Self, StoreLocationError> {
        match text.split_once(':') {
            Some(("sqlite", "")) => Err(StoreLocationError::NoPath),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("memory", "")) => Ok(Self::Memory),
            _ => Err(StoreLocationError::Unknown),
        }
    }
}

impl StoreLocation {
    /// Opens the store for writing; a missing file is made.
    pub(crate) async fn open(&self) -> Result<Arc<dyn HistoryStore>, OpenError> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new()),
            Self::Sqlite(path) => Arc::new(SqliteStore::open(path).await?),
        })
    }

    /// The path of a file beside the store's, if it has one.
    pub(crate) fn beside(&self, extension: &str) -> Option<PathBuf> {
        match self {
            Self::Memory => None,
            Self::Sqlite(path) => {
                let mut beside = path.clone().into_os_string();
                beside.push(".");
                beside.push(extension);
                Some(beside.into())
            }
        }
    }

    /// Opens the store for reading, to do something with what is stored; nothing is made.
    pub(crate) async fn open_to_read(&self, action: &'static str) -> Result<SqliteStore, CliError> {
        let options = SqliteStore::options().with_create(false).with_read_only(true);
        Ok(options.open(self.file(action)?).await?)
    }

    /// Opens the store to change what is stored; nothing is made.
    pub(crate) async fn open_to_change(
        &self,
        action: &'static str,
    ) -> Result<SqliteStore, CliError> {
        let path = self.file(action)?;
        // SQLite would make a database of an empty file.
        if fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) {
            return Err(CliError::NoStore { path: path.to_path_buf() });
        }
        let options = SqliteStore::options().with_create(false);
        Ok(options.open(path).await?)
    }

    /// The path of the store's file.
    pub(crate) fn file(&self, action: &'static str) -> Result<&Path, CliError> {
        match self {
            Self::Memory => Err(CliError::Memory { action }),
            Self::Sqlite(path) => Ok(path),
        }
    }
}

/// All conversations, or those of a scope or an id, in the byte order of their ids, and those of one
/// id in that of their scopes.
pub(crate) async fn keys(
    store: &SqliteStore,
    scope: Option<String>,
    id: Option<&str>,
) -> Result<Vec<ConversationKey>, CliError> {
    const PAGE: usize = 1000;
    let scopes = match scope {
        Some(scope) => vec![scope],
        None => store.scopes().await.map_err(CliError::Scopes)?,
    };
    let mut keys: Vec<ConversationKey> = Vec::new();
    for scope in scopes {
        let mut after: Option<String> = None;
        loop {
            let page = store.list(&scope, after.as_deref(), PAGE).await;
            let page = page.map_err(|source| CliError::List { scope: scope.clone(), source })?;
            let Some(last) = page.last() else { break };
            after = Some(last.id().to_owned());
            keys.extend(page.into_iter().filter(|key| id.is_none_or(|id| key.id() == id)));
        }
    }
    keys.sort_by(|left, right| (left.id(), left.scope()).cmp(&(right.id(), right.scope())));
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_and_anything_else_is_refused() {
        assert_eq!("memory:".parse(), Ok(StoreLocation::Memory));
        assert_eq!("sqlite:a:b.db".parse(), Ok(StoreLocation::Sqlite("a:b.db".into())));
        let refused = |text: &str| text.parse::<StoreLocation>();
        assert_eq!(refused("sqlite:"), Err(StoreLocationError::NoPath));
        for text in ["", "memory", "memory:x", "chat.db", "postgres://x", "SQLITE:x"] {
            assert_eq!(refused(text), Err(StoreLocationError::Unknown), "{text}");
        }
    }
}
