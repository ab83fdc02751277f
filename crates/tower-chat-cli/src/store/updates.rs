//! Opens the update logs of detached runs.

use std::{fs, sync::Arc};

use tower_chat_delivery::{SqliteUpdateLog, UpdateLog};
use tower_chat_encrypted::EncryptedUpdateLog;

use super::{StoreLocation, encryption};
use crate::error::CliError;

impl StoreLocation {
    /// Returns the location of the update log of a store, unless its application has chosen another one.
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

    /// Opens the update log at this location, which decrypts with the keys in the environment. Does not
    /// create a log.
    pub(crate) async fn open_updates(&self) -> Result<Arc<dyn UpdateLog>, CliError> {
        let log = match self {
            // SQLite would turn an empty file into a log.
            Self::Sqlite(path) if fs::metadata(path).map_or(0, |found| found.len()) == 0 => {
                return Err(CliError::NoUpdateLog { path: path.clone() });
            }
            Self::Sqlite(path) => {
                SqliteUpdateLog::open(path).await.map_err(CliError::OpenUpdateLog)?
            }
            Self::Memory | Self::Postgres { .. } | Self::Redis { .. } => {
                return Err(CliError::OtherUpdateLog);
            }
        };
        Ok(match encryption::keys()? {
            Some(keys) => Arc::new(EncryptedUpdateLog::new(log, keys)),
            None => Arc::new(log),
        })
    }
}
