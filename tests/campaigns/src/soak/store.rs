//! The store that the processes share.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tower_chat::{
    BoxError,
    store::{self, HistoryStore},
};
use tower_chat_postgres::PostgresStore;
use tower_chat_redis::RedisStore;
use tower_chat_sqlite::SqliteStore;

use super::StoreKind;

/// A store of one of the kinds.
#[derive(Clone)]
pub(super) struct OpenStore {
    store: Arc<dyn HistoryStore>,
    /// The same, if it is in a file.
    pub(super) file: Option<SqliteStore>,
}

/// Where a store is: a file, or the address of a server.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) kind: StoreKind,
    pub(super) address: String,
}

impl Location {
    pub(super) async fn open(&self) -> Result<OpenStore, BoxError> {
        let patience = Duration::from_secs(60);
        Ok(match self.kind {
            StoreKind::Sqlite => {
                let file = SqliteStore::open(&self.address).await?;
                OpenStore { store: Arc::new(file.clone()), file: Some(file) }
            }
            StoreKind::Postgres => {
                let options = PostgresStore::options().with_patience(patience);
                let store = options.connect(&self.address).await?;
                OpenStore { store: Arc::new(store), file: None }
            }
            StoreKind::Redis => {
                let options = RedisStore::options().with_patience(patience);
                let store = options.connect(&self.address).await?;
                OpenStore { store: Arc::new(store), file: None }
            }
        })
    }

    /// The file and its log, if it is one.
    pub(super) fn files(&self) -> Option<(PathBuf, PathBuf)> {
        let is_file = self.kind == StoreKind::Sqlite;
        is_file.then(|| (PathBuf::from(&self.address), format!("{}-wal", self.address).into()))
    }
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStore").field("file", &self.file).finish_non_exhaustive()
    }
}

#[async_trait]
impl store::StoreWrapper for OpenStore {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &Self::Inner {
        &*self.store
    }
}
