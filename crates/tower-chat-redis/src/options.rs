//! How a store is opened.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::{
    Durability, OpenError, RedisStore,
    server_settings::{self, ServerSettings},
};

/// Settings with which to open a [`RedisStore`].
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
    pub(crate) patience: Duration,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) durability: Durability,
    pub(crate) allow_eviction: bool,
}

/// More would not be quicker: each carries any number of questions.
const MOST_CONNECTIONS: u128 = 1024;

/// The longest that a conversation may live, and a server be waited for: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

impl RedisOptions {
    /// The defaults: the prefix `tower-chat`, 4 connections, 1024 slots in the queue, 30 seconds for
    /// an answer and for the server to come back, no time to live, what the server's own settings
    /// make durable.
    pub fn new() -> Self {
        Self {
            prefix: "tower-chat".to_owned(),
            connections: 4,
            max_queued: 1024,
            response_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            time_to_live: None,
            durability: Durability::Server,
            allow_eviction: false,
        }
    }

    /// What the names of all keys begin with. It must have no brace in it. Stores with different
    /// prefixes know nothing of each other.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many connections are made at most, at least 1. Each is made when it is first needed and
    /// carries any number of questions at once. Writes that wait for replicas or disks have as many
    /// of their own, on each of which those that come while others wait are sent together.
    #[must_use]
    pub fn with_max_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How many submissions may be reserved or under way at the same time, at least 1; more wait
    /// in [`reserve`](tower_chat_core::store::HistoryStore::reserve).
    #[must_use]
    pub fn with_max_queued(mut self, submissions: usize) -> Self {
        self.max_queued = submissions;
        self
    }

    /// How long an answer may take, and how long to wait for replicas and disks, at least a
    /// millisecond.
    #[must_use]
    pub fn with_response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// How long to try again, with growing pauses, when the server cannot be reached, from the first
    /// time that it could not on; [`Duration::MAX`] for ever. Writes of a conversation wait for those
    /// before them meanwhile.
    ///
    /// An attempt may itself take [`with_response_timeout`](Self::with_response_timeout) and some seconds, the
    /// first and the last too. A write that replicas or disks do not confirm is tried again as long.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Lets a conversation end so long after it was last written, at least a millisecond, all of it
    /// at one moment. A store without this setting that writes to it lets it live for ever again.
    #[must_use]
    pub fn with_time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Where a write must be before it is acknowledged.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Takes a server that throws data away when its memory is full. A conversation may then lose
    /// some of its messages; what is left of it is reported as damaged.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        self.allow_eviction = true;
        self
    }

    /// Opens the store at an address, `redis://user:password@host:port/database`. Must be called on
    /// the tokio runtime on which the store is used, with its timer and its network enabled.
    ///
    /// With the feature `tls`, `rediss://` encrypts the connection, and the server must be who its
    /// certificate says, by the root certificates of the operating system.
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

    /// What the server at an address is set to. Nothing is changed, and a server is asked that a store
    /// would refuse, too; of a cluster the one server that is named.
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
    /// [`OpenError`], if the server cannot be reached or asked.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or on one without timer or network.
    pub async fn server_settings(self, address: &str) -> Result<ServerSettings, OpenError> {
        self.check()?;
        server_settings::ask(address, &self).await
    }

    /// Opens the store in a cluster, of which some servers are given; the others are asked for. The
    /// address is as for [`connect`](Self::connect), without a database.
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
        if self.durability != Durability::Server {
            return Err(OpenError::DurabilityInCluster);
        }
        RedisStore::connect_cluster_with(addresses, self).await
    }

    fn check(&self) -> Result<(), OpenError> {
        if self.prefix.contains(['{', '}']) {
            return Err(OpenError::InvalidPrefix { prefix: self.prefix.clone() });
        }
        let permits = Semaphore::MAX_PERMITS as u128;
        let longest = LONGEST.as_millis();
        for (option, value, most) in [
            ("max_connections", self.connections as u128, MOST_CONNECTIONS),
            ("max_queued", self.max_queued as u128, permits),
            ("response_timeout", self.response_timeout.as_millis(), longest),
            ("time_to_live", self.time_to_live.map_or(1, |time| time.as_millis()), longest),
        ] {
            if !(1..=most).contains(&value) {
                return Err(OpenError::InvalidOption { option, value });
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
