//! The options of opening a store.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::{
    OpenError, PostgresStore,
    server_settings::{self, ServerSettings},
};

/// The options for opening a [`PostgresStore`].
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
    /// queue, a statement timeout and a retry timeout of 30 seconds each, prepared statements, and
    /// the root certificates of the operating system. Partitions and row-level security are
    /// disabled.
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

    /// Sets the PostgreSQL schema of the tables. If the schema does not exist, opening creates it,
    /// and the user must have the right to create schemas in the database.
    #[must_use]
    pub fn with_schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Sets the maximum number of connections, at least 1. The store opens each connection when it
    /// is first needed.
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

    /// Sets the timeout after which the server cancels a statement, at least one millisecond. The
    /// error of a cancelled statement is retryable. Use a timeout that is long enough to load the
    /// longest conversation.
    ///
    /// The store sends the timeout in the startup parameter `options` of each connection. A pooler
    /// may refuse or ignore this parameter. In that case set the timeout of the role, for example
    /// with `ALTER ROLE chat SET statement_timeout = '30s'`.
    #[must_use]
    pub fn with_statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets how long the store repeats a request, with increasing pauses, while the server is
    /// unreachable. The time begins with the first failed attempt. [`Duration::ZERO`] disables
    /// retries, and with [`Duration::MAX`] the store retries without a limit. If the server does
    /// not answer, an attempt fails five seconds after the [statement
    /// timeout](Self::with_statement_timeout). While a write is repeated, later writes to the same
    /// conversation wait.
    #[must_use]
    pub fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// Divides each table into `partitions` partitions, by a hash of the conversation's key. The
    /// option only affects the creation of the tables. If the tables exist, the option is ignored.
    #[must_use]
    pub fn with_partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Enables row-level security, with which the server itself isolates scopes. The isolation
    /// protects the data of a scope from programming errors and from other users of the database. A
    /// transaction sees only the rows of the scope that it names in the setting `tower_chat.scope`,
    /// in hexadecimal form (`\x616c696365` for `alice`). A transaction without this setting sees no
    /// rows. The restriction also applies to queries that name a partition.
    ///
    /// A transaction that sets `tower_chat.all_scopes` to `on` can read the rows of all scopes,
    /// except messages, and can change no row. The store uses this setting for lists of
    /// conversations and of usage over all scopes. Superusers, and roles with `BYPASSRLS`, see all
    /// rows.
    ///
    /// The option only affects the creation of the tables. If the tables exist, the option is
    /// ignored.
    #[must_use]
    pub fn with_row_level_security(mut self, on: bool) -> Self {
        self.row_level_security = on;
        self
    }

    /// Sets whether opening a store creates missing tables and migrates the tables of an older
    /// release (default: true). If `on` is false, opening changes nothing. Opening then fails with
    /// [`OpenError::NoTables`] if the tables are missing, and with [`OpenError::Older`] if an older
    /// release has created the tables.
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

    /// Sets whether each connection prepares its statements, so that the server parses most of them
    /// only once per connection (default: true). If `on` is false, the store sends the text of
    /// every statement, still in one round trip. Set this option to false if PgBouncer shares
    /// connections between transactions and is older than version 1.21, or has
    /// `max_prepared_statements = 0`. `docs/scaling.md` contains the measured cost.
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

    /// Sets the root certificates, in PEM format, with which the store verifies the server's
    /// certificate. By default, the store uses the root certificates of the operating system.
    #[must_use]
    pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Opens the store at an address, such as
    /// `postgres://user:password@host:port/database?sslmode=require` or `host=... user=...`.
    /// Creates or migrates the tables. Must be called on the tokio runtime on which the store will
    /// be used. The timer and the I/O driver of this runtime must be enabled.
    ///
    /// If the server offers TLS, the store uses TLS, unless the address contains `sslmode=disable`.
    /// The server's certificate must be valid for the host in the address.
    ///
    /// The parameter `connect_timeout` of the address (default: 10 seconds) limits the time for the
    /// connection to each host, and for the authentication. While this process or another one
    /// creates or migrates the tables, opening waits without a limit.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the store cannot be opened.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, or on a runtime whose timer or I/O driver is disabled.
    pub async fn connect(self, address: &str) -> Result<PostgresStore, OpenError> {
        self.check()?;
        PostgresStore::connect_with(address, self).await
    }

    /// Returns the settings of the server, and of the tables in the schema that these options name.
    /// Changes nothing. The tables may be missing, or may have been created by any release.
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
    /// Returns an [`OpenError`] if the server cannot be reached or queried.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, or on a runtime whose timer or I/O driver is disabled.
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
