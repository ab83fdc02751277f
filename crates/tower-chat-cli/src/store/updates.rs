//! Opens the update logs of applications that execute each run in a separate task. An update log
//! contains the deltas and messages of runs, for readers that reconnect.

use std::{fs, sync::Arc};

use tower_chat_delivery::{SqliteUpdateLog, UpdateLog, UpdateLogOptions};
use tower_chat_encrypted::EncryptedUpdateLog;
use tower_chat_postgres::{OpenError, PostgresUpdateLog};
use tower_chat_redis::RedisUpdateLog;

use super::{
    StoreLocation, encryption,
    opened::{postgres_options, redis_store},
};
use crate::error::CliError;

impl StoreLocation {
    /// Returns the default location of the update log that belongs to a store: the server of the
    /// store, or, for a SQLite file, the file with the suffix `-updates`.
    pub(crate) fn updates(&self) -> Self {
        match self {
            Self::Sqlite(path) => {
                let mut path = path.clone().into_os_string();
                path.push("-updates");
                Self::Sqlite(path.into())
            }
            Self::Memory | Self::Postgres { .. } | Self::Redis { .. } => self.clone(),
        }
    }

    /// Opens the update log at the location `named`, and fails if it does not exist. If `named` is
    /// `None`, opens the log at the default location, and returns `None` if it does not exist.
    pub(crate) async fn updates_of(
        &self,
        named: Option<&Self>,
    ) -> Result<Option<Arc<dyn UpdateLog>>, CliError> {
        match named {
            Some(named) => named.open_updates().await.map(Some),
            None => match self.updates().open_updates().await {
                Err(CliError::NoUpdateLog { .. }) => Ok(None),
                opened => opened.map(Some),
            },
        }
    }

    /// Opens an existing update log at this location, with the keys in the environment.
    pub(crate) async fn open_updates(&self) -> Result<Arc<dyn UpdateLog>, CliError> {
        let none = || CliError::NoUpdateLog { location: self.name() };
        let log: Arc<dyn UpdateLog> = match self {
            Self::Memory => return Err(none()),
            // SQLite would create the file of the log if it is missing, or tables in an empty file.
            Self::Sqlite(path) if fs::metadata(path).map_or(0, |found| found.len()) == 0 => {
                return Err(none());
            }
            Self::Sqlite(path) => {
                Arc::new(SqliteUpdateLog::open(path).await.map_err(CliError::OpenUpdateLog)?)
            }
            Self::Postgres { address, schema, prepared_statements } => {
                let server = postgres_options(schema.as_deref(), *prepared_statements);
                let (server, options) = (server.with_migration(false), UpdateLogOptions::default());
                match PostgresUpdateLog::connect_with(address, server, options).await {
                    Err(OpenError::NoTables { .. }) => return Err(none()),
                    opened => Arc::new(opened?),
                }
            }
            Self::Redis { address, prefix } => {
                let store = redis_store(address, prefix.as_deref()).await?;
                Arc::new(RedisUpdateLog::from_store(&store, UpdateLogOptions::default()))
            }
        };
        Ok(match encryption::keys()? {
            Some(keys) => Arc::new(EncryptedUpdateLog::new(log, keys)),
            None => log,
        })
    }
}
