//! The stores, and the servers of the stores that need a server.

use std::{path::PathBuf, sync::Arc};

use clap::ValueEnum;
use tempfile::TempDir;
use tower_chat_core::store::HistoryStore;
use tower_chat_postgres::PostgresStore;
use tower_chat_redis::RedisStore;
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::server::{Missing, PostgresServer, RedisServer};

use super::plant::{Plant, Planted};
use crate::Failure;

#[derive(Clone)]
pub(super) struct DynStore(Arc<dyn HistoryStore>);

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// One file, which both processes have open.
    Sqlite,
    /// A throwaway server.
    Postgres,
    /// A throwaway server.
    Redis,
}

/// The address of a store. The server or the folder is removed when this is dropped.
pub(super) struct Backend {
    pub(super) address: String,
    _running: Running,
}

#[expect(dead_code, reason = "dropping it stops the server or removes the folder")]
enum Running {
    Folder(TempDir),
    Postgres(PostgresServer),
    Redis(RedisServer),
}

impl StoreKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }

    pub(super) fn start(self) -> Result<Backend, Failure> {
        let missing = |missing: Missing| Failure::cannot_run(missing);
        Ok(match self {
            Self::Sqlite => {
                let folder = tempfile::tempdir().map_err(Failure::cannot_run)?;
                let address = folder.path().join("store.db").to_string_lossy().into_owned();
                Backend { address, _running: Running::Folder(folder) }
            }
            Self::Postgres => {
                let server = PostgresServer::start().map_err(missing)?;
                let address = server.address("postgres");
                Backend { address, _running: Running::Postgres(server) }
            }
            Self::Redis => {
                let server = RedisServer::start().map_err(missing)?;
                let address = server.address(0);
                Backend { address, _running: Running::Redis(server) }
            }
        })
    }

    pub(super) async fn open(
        self,
        address: &str,
        plant: Option<Plant>,
    ) -> Result<DynStore, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::cannot_run(format!("open the store: {error}"));
        let store: Arc<dyn HistoryStore> = match self {
            Self::Sqlite => {
                let path = PathBuf::from(address);
                Arc::new(SqliteStore::open(path).await.map_err(|error| failed(&error))?)
            }
            Self::Postgres => {
                let options = PostgresStore::options().with_max_connections(6);
                Arc::new(options.connect(address).await.map_err(|error| failed(&error))?)
            }
            Self::Redis => {
                Arc::new(RedisStore::connect(address).await.map_err(|error| failed(&error))?)
            }
        };
        Ok(DynStore(match plant {
            None => store,
            Some(plant) => Arc::new(Planted::new(store, plant)),
        }))
    }
}

impl std::ops::Deref for DynStore {
    type Target = dyn HistoryStore;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl std::fmt::Debug for DynStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DynStore")
    }
}
