//! How a store is opened.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::{
    OpenError, PostgresStore,
    server_settings::{self, ServerSettings},
};

/// Settings with which to open a [`PostgresStore`].
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
    pub(crate) patience: Duration,
    pub(crate) partitions: Option<u16>,
    pub(crate) row_level_security: bool,
    pub(crate) migration: bool,
    pub(crate) prepared_statements: bool,
    pub(crate) root_certificates: Option<Vec<u8>>,
}

impl PostgresOptions {
    /// The defaults: the schema `tower_chat`, 16 connections, 1024 slots in the queue, 30 seconds
    /// for a statement and for the server to come back, no partitions, no row-level security,
    /// prepared statements, the certificates of the operating system.
    pub fn new() -> Self {
        Self {
            schema: "tower_chat".to_owned(),
            connections: 16,
            max_queued: 1024,
            statement_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            partitions: None,
            row_level_security: false,
            migration: true,
            prepared_statements: true,
            root_certificates: None,
        }
    }

    /// The PostgreSQL schema that holds the tables. It is made if there is none, for which the user
    /// must have the right to make schemas in the database.
    #[must_use]
    pub fn with_schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// How many connections are made at most, at least 1. Each is made when it is first needed.
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

    /// How long the server may take over one statement, at least a millisecond; it then gives up,
    /// and the error is retryable. It must be enough to load the longest conversation.
    ///
    /// The server is told when a connection is made, in the startup parameter `options`. A pooler may
    /// refuse that, or ignore it: then `ALTER ROLE chat SET statement_timeout = '30s'` says the same.
    #[must_use]
    pub fn with_statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// How long to try again, with growing pauses, when the server cannot be reached. It begins with
    /// the first failure; [`Duration::ZERO`] is never, [`Duration::MAX`] for ever. A server that says
    /// nothing has failed five seconds after the [`with_statement_timeout`](Self::with_statement_timeout). Writes
    /// of a conversation wait for those before them meanwhile.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Divides each table into so many partitions by a hash of the conversation's key. It is decided
    /// when the tables are made, and not looked at afterwards.
    #[must_use]
    pub fn with_partitions(mut self, partitions: u16) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Lets the server itself keep scopes apart, against mistakes and against whoever else uses the
    /// database: a transaction sees the rows of the scope that it names in the setting
    /// `tower_chat.scope`, as bytes (`\x616c696365` for `alice`), and without it none,
    /// also in a partition that is named itself. A transaction that sets `tower_chat.all_scopes` to `on`,
    /// as the store does for what is asked of the directory about all scopes, can read all rows but
    /// messages, and change none. Superusers, and roles with `BYPASSRLS`, see
    /// everything all the same.
    ///
    /// It is decided when the tables are made, and not looked at afterwards.
    #[must_use]
    pub fn with_row_level_security(mut self, on: bool) -> Self {
        self.row_level_security = on;
        self
    }

    /// Whether opening makes the tables, or brings those of an older release up to date; it does by
    /// default. Without it, opening fails where there are none ([`OpenError::NoTables`]) or where they
    /// are older ([`OpenError::Older`]), and never changes them.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), tower_chat_postgres::OpenError> {
    /// use tower_chat_postgres::{OpenError, PostgresStore};
    /// let options = PostgresStore::options().with_migration(false);
    /// match options.connect("postgres://reader@db.example.com/chat").await {
    ///     Err(OpenError::Older { version, supported, .. }) => {
    ///         println!("version {version} is to be brought up to {supported} first");
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

    /// Whether each connection prepares its statements, so that the server parses and plans most of
    /// them once; it does by default. Without it every statement is sent whole, still in one round
    /// trip, as PgBouncer needs where it pools transactions and is older than 1.21 or has
    /// `max_prepared_statements = 0`. `docs/scaling.md` has what it costs.
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

    /// The root certificates by which to know the server, in PEM, instead of those of the
    /// operating system.
    #[must_use]
    pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Opens the store at an address, `postgres://user:password@host:port/database?sslmode=require`,
    /// or as `host=... user=...`. Makes the tables, or brings them up to date. Must be called on the
    /// tokio runtime on which the store is used, with its timer and its network enabled.
    ///
    /// Where the server offers TLS it is used, unless the address says `sslmode=disable`, and the
    /// server must be who its certificate says.
    ///
    /// Each host of the address may take `connect_timeout` seconds until it is reached, or 10 if the
    /// address does not say, and the last as long again until it lets somebody in. Only while tables
    /// are made or brought up to date, by this process or another, opening waits for as long as it
    /// takes.
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

    /// What the server, and the tables in the schema of these options, are set to. Nothing is made or
    /// changed, and tables of every release will do, or none.
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
    /// [`OpenError`], if the server cannot be reached or asked.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or on one without timer or network.
    pub async fn server_settings(self, address: &str) -> Result<ServerSettings, OpenError> {
        self.check()?;
        server_settings::ask(address, &self).await
    }

    fn check(&self) -> Result<(), OpenError> {
        let partitions = self.partitions.map_or(1, usize::from);
        let milliseconds = usize::try_from(self.statement_timeout.as_millis());
        for (option, value, most) in [
            ("max_connections", self.connections, Semaphore::MAX_PERMITS),
            ("max_queued", self.max_queued, Semaphore::MAX_PERMITS),
            ("partitions", partitions, usize::from(u16::MAX)),
            ("statement_timeout", milliseconds.unwrap_or(usize::MAX), i32::MAX as usize),
        ] {
            if !(1..=most).contains(&value) {
                return Err(OpenError::InvalidOption { option, value });
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
