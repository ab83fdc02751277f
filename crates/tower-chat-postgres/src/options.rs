//! The options of opening a store.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::{
    OpenError, PostgresStore,
    server_settings::{self, ServerSettings},
};

/// The options with which a [`PostgresStore`] is opened.
///
/// ```no_run
/// # async fn open() -> Result<(), tower_chat_postgres::OpenError> {
/// use std::time::Duration;
/// use tower_chat_postgres::PostgresStore;
/// let store = PostgresStore::options()
///     .with_max_connections(32)
///     .with_statement_timeout(Duration::from_secs(5))
///     .connect("postgres://chat@db.example.com/chat?sslmode=require")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) max_queued: usize,
    pub(crate) statement_timeout: Duration,
    pub(crate) retry_timeout: Duration,
    pub(crate) partitions: Option<u16>,
    pub(crate) row_level_security: bool,
    pub(crate) migration: bool,
    pub(crate) prepared_statements: bool,
    pub(crate) root_certificates: Option<Vec<u8>>,
}

impl PostgresOptions {
    /// Creates the default options: the schema `tower_chat`, 16 connections, 1024 slots in the
    /// queue, 30 seconds each for a statement and for retries, no partitions, no row-level
    /// security, prepared statements, and the certificates of the operating system.
    pub fn new() -> Self {
        Self {
            schema: "tower_chat".to_owned(),
            connections: 16,
            max_queued: 1024,
            statement_timeout: Duration::from_secs(30),
            retry_timeout: Duration::from_secs(30),
            partitions: None,
            row_level_security: false,
            migration: true,
            prepared_statements: true,
            root_certificates: None,
        }
    }

    /// Sets the PostgreSQL schema of the tables. If the schema does not exist, opening creates it, and
    /// the user must have the right to create schemas in the database.
    #[must_use]
    pub fn with_schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the maximum number of connections, at least 1. Each is opened when it is first needed.
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

    /// Sets the server's timeout of one statement, at least a millisecond. After this time the
    /// server cancels the statement, and the error is retryable. The timeout must be long enough to
    /// load the longest conversation.
    ///
    /// The connection sets the timeout in the startup parameter `options`. A pooler may refuse or
    /// ignore this parameter. In that case use `ALTER ROLE chat SET statement_timeout = '30s'`.
    #[must_use]
    pub fn with_statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets the time for which requests are repeated, with growing pauses, while the server is
    /// unreachable. The time begins with the first failure. [`Duration::ZERO`] means no retries,
    /// [`Duration::MAX`] no limit. An attempt without an answer counts as failed five seconds after the
    /// [statement timeout](Self::with_statement_timeout). Later writes of the conversation wait
    /// meanwhile.
    #[must_use]
    pub fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// Divides each table into this many partitions by a hash of the conversation's key. The option
    /// takes effect when the tables are created, and is ignored afterwards.
    #[must_use]
    pub fn with_partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Makes the server itself isolate scopes, against mistakes and against other users of the database.
    /// A transaction sees only the rows of the scope in the setting `tower_chat.scope`, as bytes
    /// (`\x616c696365` for `alice`), and no rows without the setting. The restriction also applies to a
    /// query that names a partition. A transaction that sets `tower_chat.all_scopes` to `on` can read all
    /// rows except messages, and change none. The store does so for queries of the directory over all
    /// scopes. Superusers, and roles with `BYPASSRLS`, see all rows.
    ///
    /// The option takes effect when the tables are created, and is ignored afterwards.
    #[must_use]
    pub fn with_row_level_security(mut self, on: bool) -> Self {
        self.row_level_security = on;
        self
    }

    /// Sets whether opening creates missing tables and migrates those of an older release (default:
    /// true). If not, opening fails for missing tables ([`OpenError::NoTables`]) and for older ones
    /// ([`OpenError::Older`]), and changes nothing.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), tower_chat_postgres::OpenError> {
    /// use tower_chat_postgres::{OpenError, PostgresStore};
    /// let options = PostgresStore::options().with_migration(false);
    /// match options.connect("postgres://reader@db.example.com/chat").await {
    ///     Err(OpenError::Older { version, supported, .. }) => {
    ///         println!("version {version} must be migrated to {supported} first");
    ///     }
    ///     opened => drop(opened?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_migration(mut self, on: bool) -> Self {
        self.migration = on;
        self
    }

    /// Sets whether each connection prepares its statements, so that the server parses and plans
    /// most of them once (default: true). If not, every statement is sent as text, still in one
    /// round trip. PgBouncer needs this if it shares connections between transactions and is older
    /// than 1.21 or has `max_prepared_statements = 0`. `docs/scaling.md` has the measured cost.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), tower_chat_postgres::OpenError> {
    /// use tower_chat_postgres::PostgresStore;
    /// let options = PostgresStore::options().with_prepared_statements(false);
    /// let store = options.connect("postgres://chat@pooler.example.com:6432/chat").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_prepared_statements(mut self, on: bool) -> Self {
        self.prepared_statements = on;
        self
    }

    /// Sets the root certificates that verify the server's certificate, in PEM, instead of those of
    /// the operating system.
    #[must_use]
    pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Opens the store at an address, such as
    /// `postgres://user:password@host:port/database?sslmode=require` or `host=... user=...`.
    /// Creates or migrates the tables. Must be called on the tokio runtime on which the store is
    /// used, with its timer and its network enabled.
    ///
    /// If the server offers TLS it is used, unless the address contains `sslmode=disable`, and the
    /// server's certificate must be valid for the host.
    ///
    /// The timeout `connect_timeout`, 10 seconds by default, applies to connecting to each host, and once
    /// more to the authentication at the last host. While this or another process creates or migrates
    /// tables, opening waits without a limit.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or on one without timer or network.
    pub async fn connect(self, address: &str) -> Result<PostgresStore, OpenError> {
        self.check()?;
        PostgresStore::connect_with(address, self).await
    }

    /// Returns the settings of the server, and of the tables in the schema of these options.
    /// Nothing is created or changed. The tables may be of any release, or missing.
    ///
    /// ```no_run
    /// # async fn look() -> Result<(), tower_chat_postgres::OpenError> {
    /// use tower_chat_postgres::PostgresStore;
    /// let settings = PostgresStore::options().server_settings("postgres://chat@db/chat").await?;
    /// if !settings.fsync {
    ///     println!("a loss of power may damage the database: set fsync = on");
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

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let partitions = self.partitions.map_or(1, usize::from);
        let milliseconds = usize::try_from(self.statement_timeout.as_millis());
        for (option, value, largest) in [
            ("max_connections", self.connections, Semaphore::MAX_PERMITS),
            ("max_queued", self.max_queued, Semaphore::MAX_PERMITS),
            ("partitions", partitions, usize::from(u16::MAX)),
            ("statement_timeout", milliseconds.unwrap_or(usize::MAX), i32::MAX as usize),
        ] {
            if !(1..=largest).contains(&value) {
                return Err(OpenError::InvalidOption { option, value, largest });
            }
        }
        Ok(())
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}
