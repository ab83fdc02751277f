//! [`OpenedStore`], and the functions that open it.

use std::{fs, path::Path, sync::Arc};

use tower_chat::{HistoryStore, MemoryStore};
use tower_chat_encrypted::{EncryptedStore, MasterKeys};
use tower_chat_postgres::{PostgresOptions, PostgresStore};
use tower_chat_redis::{RedisOptions, RedisStore};
use tower_chat_repair::Target;
use tower_chat_sqlite::{SqliteOptions, SqliteStore};

use super::{StoreLocation, encryption};
use crate::error::CliError;

#[derive(Clone)]
pub(crate) struct OpenedStore {
    history: Arc<dyn HistoryStore>,
    encrypted: Option<EncryptedStore<Arc<dyn HistoryStore>>>,
    sqlite: Option<SqliteStore>,
}

impl OpenedStore {
    /// Returns the store, which encrypts and decrypts content if keys are set.
    pub(crate) fn history(&self) -> &Arc<dyn HistoryStore> {
        &self.history
    }

    /// Returns whether the store was opened with encryption keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.encrypted.is_some()
    }

    /// Returns the target for `verify` and `repair`, with the file of a SQLite store.
    pub(crate) fn target(&self) -> Target {
        let target = match &self.encrypted {
            Some(encrypted) => Target::encrypted(encrypted.clone()),
            None => Target::new(self.history.clone()),
        };
        match &self.sqlite {
            Some(file) => target.with_file(file.clone()),
            None => target,
        }
    }

    /// Returns the SQLite store without its encryption. Fails for any other kind of store.
    pub(crate) fn sqlite(&self, action: &'static str) -> Result<&SqliteStore, CliError> {
        self.sqlite.as_ref().ok_or(CliError::NoFile { action })
    }

    /// Waits until all submitted writes have completed, and closes the store.
    pub(crate) async fn close(&self) -> Result<(), CliError> {
        self.history.close().await.map_err(CliError::Close)
    }

    fn new(
        store: impl HistoryStore,
        sqlite: Option<SqliteStore>,
        keys: Option<MasterKeys>,
    ) -> Self {
        let inner: Arc<dyn HistoryStore> = Arc::new(store);
        let encrypted = keys.map(|keys| EncryptedStore::new(inner.clone(), keys));
        let history = match &encrypted {
            Some(encrypted) => Arc::new(encrypted.clone()),
            None => inner,
        };
        Self { history, encrypted, sqlite }
    }
}

impl StoreLocation {
    /// Opens the store for writing. Creates a missing file or tables, and migrates an older store.
    pub(crate) async fn open(&self) -> Result<OpenedStore, CliError> {
        self.open_with(encryption::keys()?).await
    }

    /// Opens the target store of `copy`, with the keys for the target store.
    pub(crate) async fn open_as_target(&self) -> Result<OpenedStore, CliError> {
        self.open_with(encryption::target_keys()?).await
    }

    async fn open_with(&self, keys: Option<MasterKeys>) -> Result<OpenedStore, CliError> {
        match self {
            Self::Memory => Ok(OpenedStore::new(MemoryStore::new(), None, keys)),
            Self::Sqlite(path) => open_file(path, SqliteStore::options(), keys).await,
            Self::Postgres { address, schema, prepared_statements } => {
                let options = postgres_options(schema.as_deref(), *prepared_statements);
                open_postgres(address, options, keys).await
            }
            Self::Redis { address, prefix } => open_redis(address, prefix.as_deref(), keys).await,
        }
    }

    /// Opens an existing store for reading. Does not create or migrate files or tables.
    pub(crate) async fn open_to_read(&self, action: &'static str) -> Result<OpenedStore, CliError> {
        match self {
            Self::Memory => Err(CliError::Memory { action }),
            Self::Sqlite(path) => {
                let options = SqliteStore::options().with_create(false).with_read_only(true);
                open_file(path, options, encryption::keys()?).await
            }
            Self::Postgres { address, schema, prepared_statements } => {
                let options = postgres_options(schema.as_deref(), *prepared_statements);
                open_postgres(address, options.with_migration(false), encryption::keys()?).await
            }
            Self::Redis { .. } => self.open().await,
        }
    }

    /// Opens an existing store for changes, and migrates a store of an older release. Does not
    /// create a file, but creates missing tables on a PostgreSQL server.
    pub(crate) async fn open_to_change(
        &self,
        action: &'static str,
    ) -> Result<OpenedStore, CliError> {
        match self {
            Self::Memory => Err(CliError::Memory { action }),
            // SQLite would accept an empty file and create a database in it.
            Self::Sqlite(path) if is_empty_file(path) => {
                Err(CliError::NoStore { path: path.clone() })
            }
            Self::Sqlite(path) => {
                let options = SqliteStore::options().with_create(false);
                open_file(path, options, encryption::keys()?).await
            }
            Self::Postgres { .. } | Self::Redis { .. } => self.open().await,
        }
    }
}

fn is_empty_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0)
}

async fn open_file(
    path: &Path,
    options: SqliteOptions,
    keys: Option<MasterKeys>,
) -> Result<OpenedStore, CliError> {
    let store = options.open(path).await?;
    Ok(OpenedStore::new(store.clone(), Some(store), keys))
}

/// Returns the options for a PostgreSQL store. `schema` is the schema that contains the tables.
pub(crate) fn postgres_options(schema: Option<&str>, prepared_statements: bool) -> PostgresOptions {
    let options = PostgresStore::options().with_prepared_statements(prepared_statements);
    schema.map_or(options.clone(), |schema| options.with_schema(schema))
}

/// Returns the options for a Redis store. `prefix` is the prefix of all keys.
pub(crate) fn redis_options(prefix: Option<&str>) -> RedisOptions {
    let options = RedisStore::options();
    prefix.map_or(options.clone(), |prefix| options.with_prefix(prefix))
}

async fn open_postgres(
    address: &str,
    options: PostgresOptions,
    keys: Option<MasterKeys>,
) -> Result<OpenedStore, CliError> {
    Ok(OpenedStore::new(options.connect(address).await?, None, keys))
}

async fn open_redis(
    address: &str,
    prefix: Option<&str>,
    keys: Option<MasterKeys>,
) -> Result<OpenedStore, CliError> {
    Ok(OpenedStore::new(redis_store(address, prefix).await?, None, keys))
}

/// Connects to a Redis server or a Redis cluster.
pub(super) async fn redis_store(
    address: &str,
    prefix: Option<&str>,
) -> Result<RedisStore, CliError> {
    let options = redis_options(prefix);
    let store = match options.clone().connect(address).await {
        Err(tower_chat_redis::OpenError::Cluster) => options.connect_cluster(&[address]).await,
        opened => opened,
    };
    store.map_err(CliError::OpenRedis)
}
