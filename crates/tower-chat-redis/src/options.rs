//! The options of opening a store.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::{
    OpenError, RedisStore, WriteConcern,
    server_settings::{self, ServerSettings},
};

/// The options with which a [`RedisStore`] is opened.
///
/// ```no_run
/// # async fn open() -> Result<(), tower_chat_redis::OpenError> {
/// use std::time::Duration;
/// use tower_chat_redis::RedisStore;
/// let store = RedisStore::options()
///     .with_prefix("support")
///     .with_time_to_live(Duration::from_secs(90 * 24 * 60 * 60))
///     .connect("redis://chat:secret@redis.example.com/0")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedisOptions {
    pub(crate) prefix: String,
    pub(crate) connections: usize,
    pub(crate) max_queued: usize,
    pub(crate) response_timeout: Duration,
    pub(crate) retry_timeout: Duration,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) write_concern: WriteConcern,
    pub(crate) allow_eviction: bool,
}

/// The maximum number of connections. More would not be faster, because each connection serves any number
/// of concurrent requests.
const MAX_CONNECTIONS: u128 = 1024;

/// The maximum time to live and timeout: a hundred years.
const MAX_DURATION: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

impl RedisOptions {
    /// Creates the default options: the prefix `tower-chat`, 4 connections, 1024 slots in the
    /// queue, 30 seconds each for a reply and for retries, no time to live, and the durability of
    /// the server's settings.
    pub fn new() -> Self {
        Self {
            prefix: "tower-chat".to_owned(),
            connections: 4,
            max_queued: 1024,
            response_timeout: Duration::from_secs(30),
            retry_timeout: Duration::from_secs(30),
            time_to_live: None,
            write_concern: WriteConcern::Server,
            allow_eviction: false,
        }
    }

    /// Sets the prefix of the names of all keys. The prefix must not contain a brace. Stores with
    /// different prefixes are independent.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum number of connections, at least 1. Each is opened when it is first needed and
    /// serves any number of concurrent requests. Writes that wait for replicas or disks have as many
    /// connections of their own. On each of these, writes that arrive while others wait are sent
    /// together.
    #[must_use]
    pub fn with_max_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the maximum number of submissions that are reserved or unfinished, at least 1. Further
    /// callers wait in [`reserve`](tower_chat_core::store::HistoryStore::reserve).
    #[must_use]
    pub fn with_max_queued(mut self, submissions: usize) -> Self {
        self.max_queued = submissions;
        self
    }

    /// Sets the timeout of a reply, and of waiting for replicas and disks, at least a millisecond.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets the time for which requests are repeated, with growing pauses, while the server is
    /// unreachable. The time begins with the first failure. [`Duration::MAX`] means no limit. Later
    /// writes of the conversation wait meanwhile.
    ///
    /// Each attempt, including the first and the last, may take
    /// [`with_response_timeout`](Self::with_response_timeout) and some seconds more. A write that
    /// replicas or disks do not confirm is repeated for the same time.
    #[must_use]
    pub fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// Deletes a whole conversation at once when this time has passed since its last write. The minimum
    /// is a millisecond. A write through a store without this setting removes the time to live.
    #[must_use]
    pub fn with_time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Sets the durability of acknowledged writes.
    #[must_use]
    pub fn with_write_concern(mut self, write_concern: WriteConcern) -> Self {
        self.write_concern = write_concern;
        self
    }

    /// Accepts a server whose eviction policy may delete keys. A conversation may then lose some of
    /// its messages; the rest of it is reported as damaged.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        self.allow_eviction = true;
        self
    }

    /// Opens the store at an address, such as `redis://user:password@host:port/database`. Must be
    /// called on the tokio runtime on which the store is used, with its timer and its network
    /// enabled.
    ///
    /// With the feature `tls`, `rediss://` encrypts the connection. The server's certificate must
    /// be valid for the host and signed by a root certificate of the operating system.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or on one without timer or network.
    pub async fn connect(self, address: &str) -> Result<RedisStore, OpenError> {
        self.check()?;
        RedisStore::connect_with(address, self).await
    }

    /// Returns the settings of the server at an address. Nothing is changed. Servers that a store
    /// would refuse are accepted. In a cluster, only the server at the address is queried.
    ///
    /// ```no_run
    /// # async fn look() -> Result<(), tower_chat_redis::OpenError> {
    /// use tower_chat_redis::RedisStore;
    /// let settings = RedisStore::options().server_settings("redis://localhost/").await?;
    /// if !settings.is_append_only {
    ///     println!("a crash loses what was written since the last snapshot");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`OpenError`], if the server cannot be reached or queried.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or on one without timer or network.
    pub async fn server_settings(self, address: &str) -> Result<ServerSettings, OpenError> {
        self.check()?;
        server_settings::ask(address, &self).await
    }

    /// Opens the store in a cluster, from the addresses of some of its servers; these report the
    /// others. The addresses are like those of [`connect`](Self::connect), without a database.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or on one without timer or network.
    #[cfg(feature = "cluster")]
    pub async fn connect_cluster(self, addresses: &[&str]) -> Result<RedisStore, OpenError> {
        self.check()?;
        if self.write_concern != WriteConcern::Server {
            return Err(OpenError::DurabilityInCluster);
        }
        RedisStore::connect_cluster_with(addresses, self).await
    }

    fn check(&self) -> Result<(), OpenError> {
        if self.prefix.contains(['{', '}']) {
            return Err(OpenError::InvalidPrefix { prefix: self.prefix.clone() });
        }
        let permits = Semaphore::MAX_PERMITS as u128;
        let longest = MAX_DURATION.as_millis();
        for (option, value, largest) in [
            ("max_connections", self.connections as u128, MAX_CONNECTIONS),
            ("max_queued", self.max_queued as u128, permits),
            ("response_timeout", self.response_timeout.as_millis(), longest),
            ("time_to_live", self.time_to_live.map_or(1, |time| time.as_millis()), longest),
        ] {
            if !(1..=largest).contains(&value) {
                return Err(OpenError::InvalidOption { option, value, largest });
            }
        }
        Ok(())
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self::new()
    }
}
