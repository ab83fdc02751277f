//! The options of opening a store.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::{
    OpenError, RedisStore, WriteConcern,
    server_settings::{self, ServerSettings},
};

/// The options for opening a [`RedisStore`].
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

/// The largest accepted number of connections.
const MAX_CONNECTIONS: u128 = 1024;

/// The largest accepted time to live and timeout: a hundred years.
const MAX_DURATION: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

impl RedisOptions {
    /// Creates the default options: the prefix `tower-chat`, 4 connections, 1024 slots in the
    /// queue, a response timeout and a retry timeout of 30 seconds each, no time to live, and
    /// [`WriteConcern::Server`].
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
    /// different prefixes share no data.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum number of connections, at least 1. The store opens each connection when it
    /// is first needed. A connection serves any number of concurrent requests. Writes that wait for
    /// replicas or disks use separate connections, also up to this number. While some of these
    /// writes wait on a connection, further writes form a group that is sent afterwards.
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

    /// Sets the timeout for the reply to a request, and for the confirmation by replicas and disks,
    /// at least one millisecond.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets how long the store repeats a request, with increasing pauses, while the server is
    /// unreachable. The time begins with the first failed attempt. With [`Duration::MAX`] the store
    /// retries without a limit. While a write is repeated, later writes to the same conversation
    /// wait.
    ///
    /// Each attempt may take some seconds longer than
    /// [`with_response_timeout`](Self::with_response_timeout). The store also repeats a write that
    /// replicas or disks do not confirm.
    #[must_use]
    pub fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// Deletes a conversation when this time has passed since its last write, at least one
    /// millisecond. All keys of the conversation expire together. A write through a store without
    /// this option removes the time to live of its conversation.
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

    /// Accepts a server whose eviction policy may delete keys. The server may then delete a part of
    /// a conversation. The store reports such a conversation as damaged.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        self.allow_eviction = true;
        self
    }

    /// Opens the store at an address, such as `redis://user:password@host:port/database`. Must be
    /// called on the tokio runtime on which the store will be used. The timer and the I/O driver of
    /// this runtime must be enabled.
    ///
    /// With the feature `tls`, `rediss://` encrypts the connection. The server's certificate must
    /// be valid for the host and signed by a root certificate of the operating system.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the store cannot be opened.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, or on a runtime whose timer or I/O driver is disabled.
    pub async fn connect(self, address: &str) -> Result<RedisStore, OpenError> {
        self.check()?;
        RedisStore::connect_with(address, self).await
    }

    /// Returns the settings of the server at an address, without changing anything. Opening a store
    /// on this server may fail. In a cluster, queries only the server at the address.
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
    /// Returns an [`OpenError`] if the server cannot be reached or queried.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, or on a runtime whose timer or I/O driver is disabled.
    pub async fn server_settings(self, address: &str) -> Result<ServerSettings, OpenError> {
        self.check()?;
        server_settings::ask(address, &self).await
    }

    /// Opens the store in a cluster. `addresses` contains the addresses of one or more servers of
    /// the cluster, which report the other servers. The addresses have the form that
    /// [`connect`](Self::connect) documents, without a database.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the store cannot be opened.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, or on a runtime whose timer or I/O driver is disabled.
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
