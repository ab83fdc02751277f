//! The store that the processes share.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use tower_chat::{BoxError, ConversationKey, store};
use tower_chat_postgres::PostgresStore;
use tower_chat_redis::RedisStore;
use tower_chat_sqlite::SqliteStore;

use super::StoreKind;
use crate::shared_store::SharedStore;

#[derive(Debug, Clone)]
pub(super) struct OpenStore {
    store: SharedStore,
    /// The same store, if it is a `SqliteStore`.
    pub(super) file: Option<SqliteStore>,
}

#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) kind: StoreKind,
    pub(super) address: String,
}

impl Location {
    pub(super) async fn open(&self) -> Result<OpenStore, BoxError> {
        let retry_timeout = Duration::from_secs(60);
        Ok(match self.kind {
            StoreKind::Sqlite => {
                let file = SqliteStore::open(&self.address).await?;
                OpenStore { store: SharedStore::new(file.clone()), file: Some(file) }
            }
            StoreKind::Postgres => {
                let options = PostgresStore::options().with_retry_timeout(retry_timeout);
                let store = options.connect(&self.address).await?;
                OpenStore { store: SharedStore::new(store), file: None }
            }
            StoreKind::Redis => {
                let options = RedisStore::options().with_retry_timeout(retry_timeout);
                let store = options.connect(&self.address).await?;
                OpenStore { store: SharedStore::new(store), file: None }
            }
        })
    }

    pub(super) fn files(&self) -> Option<(PathBuf, PathBuf)> {
        let is_file = self.kind == StoreKind::Sqlite;
        is_file.then(|| (PathBuf::from(&self.address), format!("{}-wal", self.address).into()))
    }
}

impl OpenStore {
    pub(super) fn as_dyn(&self) -> &dyn tower_chat::HistoryStore {
        self.store.as_dyn()
    }
}

#[async_trait]
impl store::author::StoreWrapper for OpenStore {
    type Inner = SharedStore;

    fn inner(&self) -> &Self::Inner {
        &self.store
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &store::author::LoadFrom,
    ) -> Result<store::History, store::StoreError> {
        self.as_dyn().load_from(key, from).await
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }

    fn summaries(&self) -> Option<&dyn store::Summaries> {
        self.inner().summaries()
    }
}
