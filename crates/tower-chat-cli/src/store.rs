//! Where histories are kept.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use tower_chat::core::{MemoryStore, store::HistoryStore};
use tower_chat_sqlite::{OpenError, SqliteStore};

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
