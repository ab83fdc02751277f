//! Opens the store into which conversations are played.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use tower_chat::{BoxError, HistoryStore, MemoryStore};
use tower_chat_postgres::PostgresStore;
use tower_chat_redis::{OpenError, RedisStore};
use tower_chat_sqlite::SqliteStore;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreLocation {
    Memory,
    Sqlite(PathBuf),
    /// The address, and the schema of the tables if it is not the default.
    Postgres(String, Option<String>),
    /// The address, and the prefix of all keys if it is not the default.
    Redis(String, Option<String>),
}

/// The error of an argument that is not the location of a store. The error does not contain the
/// argument, which may contain a password.
#[derive(Debug, thiserror::Error)]
#[error("it must be memory:, or begin with sqlite:, postgres:// or redis://, as in sqlite:chat.db")]
pub(super) struct NoStore;

impl FromStr for StoreLocation {
    type Err = NoStore;

    fn from_str(text: &str) -> Result<Self, NoStore> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                let (address, schema) = without_parameter(text, "schema");
                Ok(Self::Postgres(address, schema))
            }
            Some(("redis" | "rediss", rest)) if rest.starts_with("//") => {
                let (address, prefix) = without_parameter(text, "prefix");
                Ok(Self::Redis(address, prefix))
            }
            _ => Err(NoStore),
        }
    }
}

/// Removes a parameter from an address, and returns the address and the value of the parameter. The
/// parameter is for the store, and the server would reject it.
fn without_parameter(address: &str, name: &str) -> (String, Option<String>) {
    let Some((base, query)) = address.split_once('?') else { return (address.to_owned(), None) };
    let is_it = |parameter: &&str| parameter.split_once('=').is_some_and(|(it, _)| it == name);
    let (own, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_it);
    let value = own.last().and_then(|parameter| parameter.split_once('='));
    let address = match others.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", others.join("&")),
    };
    (address, value.map(|(_, value)| value.to_owned()))
}

impl StoreLocation {
    pub(super) async fn open(&self) -> Result<Arc<dyn HistoryStore>, BoxError> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new()),
            Self::Sqlite(path) => Arc::new(SqliteStore::open(path).await?),
            Self::Postgres(address, schema) => {
                let options = PostgresStore::options();
                let options = match schema {
                    Some(schema) => options.with_schema(schema),
                    None => options,
                };
                Arc::new(options.connect(address).await?)
            }
            Self::Redis(address, prefix) => {
                let options = RedisStore::options();
                let options = match prefix {
                    Some(prefix) => options.with_prefix(prefix),
                    None => options,
                };
                match options.clone().connect(address).await {
                    Err(OpenError::Cluster) => {
                        Arc::new(options.connect_cluster(&[address.as_str()]).await?)
                    }
                    opened => Arc::new(opened?),
                }
            }
        })
    }

    /// Returns the path of a file next to the file of the store, if the store has one.
    pub(super) fn beside(&self, extension: &str) -> Option<PathBuf> {
        let Self::Sqlite(path) = self else { return None };
        let mut beside = path.clone().into_os_string();
        beside.push(".");
        beside.push(extension);
        Some(beside.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_store_locations_are_parsed_and_other_texts_are_refused() {
        assert_eq!("memory:".parse::<StoreLocation>().unwrap(), StoreLocation::Memory);
        let sqlite = StoreLocation::Sqlite("a:b.db".into());
        assert_eq!("sqlite:a:b.db".parse::<StoreLocation>().unwrap(), sqlite);
        let postgres = StoreLocation::Postgres("postgres://h/d?x=y".into(), Some("a".into()));
        let text = "postgres://h/d?x=y&schema=a";
        assert_eq!(text.parse::<StoreLocation>().unwrap(), postgres);
        let redis = StoreLocation::Redis("redis://h/1".into(), Some("p:".into()));
        assert_eq!("redis://h/1?prefix=p:".parse::<StoreLocation>().unwrap(), redis);
        for text in ["", "memory", "memory:x", "sqlite:", "chat.db", "postgres:x", "redis:x"] {
            assert!(text.parse::<StoreLocation>().is_err(), "{text}");
        }
    }
}
