//! The connection pool, and the requests that are sent through its connections.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use futures_util::future::join_all;
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use tower_chat_core::{
    store::{
        StoreError,
        author::{Retry, SealMark, SealedChange},
    },
    telemetry::{
        GaugeGuard, is_recorded,
        metric::{CONNECTIONS, label},
    },
};

use crate::{
    failure::Failure,
    parameter::Values,
    sent_statement::Over,
    statements::Statements,
    telemetry::{SYSTEM, TELEMETRY},
};

/// The connections of a store, and its statements.
#[derive(Debug)]
pub(crate) struct Connections {
    pool: Pool,
    pub(crate) statements: Statements,
    /// Whether each transaction must set its scope, because the tables have policies.
    pub(crate) names_scope: bool,
    /// Whether each connection prepares its statements.
    pub(crate) prepares_statements: bool,
    /// The timeout of a statement on the server.
    statement_timeout: Duration,
    /// Repeats requests while the server is unreachable.
    retry: Retry,
    /// The cached mark that the store contains sealed (encrypted) data.
    pub(crate) seal_mark: SealMark,
    /// The guard that reports the number of open connections to a gauge.
    counted: Mutex<Option<GaugeGuard>>,
    #[cfg(feature = "delivery")]
    pub(crate) connector: Connector,
    /// Whether opening may create tables.
    #[cfg(feature = "delivery")]
    pub(crate) creates_tables: bool,
}

/// Opens connections outside of the pool.
#[cfg(feature = "delivery")]
pub(crate) struct Connector {
    pub(crate) config: Config,
    pub(crate) tls: MakeRustlsConnect,
}

/// One query and its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a> {
    pub(crate) sql: &'a str,
    pub(crate) values: Values<'a>,
}

/// The time that an answer may take in addition to the server's statement timeout.
const TRANSFER_TIME: Duration = Duration::from_secs(5);

const SEAL_MARK: &str = "use the mark of sealed data";

impl Connections {
    pub(crate) fn new(
        config: Config,
        tls: MakeRustlsConnect,
        statements: Statements,
        settings: &crate::PostgresOptions,
    ) -> Result<Self, deadpool_postgres::BuildError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        // The client library applies `connect_timeout` to the connection to each host. The pool
        // adds the same time for the authentication at the last host.
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
        let times = u32::try_from(hosts + 1).unwrap_or(u32::MAX);
        let limit = config.get_connect_timeout().map(|limit| limit.saturating_mul(times));
        #[cfg(feature = "delivery")]
        let connector = Connector { config: config.clone(), tls: tls.clone() };
        let manager = Manager::from_config(config, tls, recycling);
        let pool = Pool::builder(manager)
            .max_size(settings.connections)
            .create_timeout(limit)
            .runtime(Runtime::Tokio1)
            .build()?;
        Ok(Self {
            pool,
            statements,
            names_scope: false,
            prepares_statements: settings.prepared_statements,
            statement_timeout: settings.statement_timeout,
            retry: Retry::new(settings.retry_timeout).with_telemetry(TELEMETRY),
            seal_mark: SealMark::default(),
            counted: Mutex::default(),
            #[cfg(feature = "delivery")]
            connector,
            #[cfg(feature = "delivery")]
            creates_tables: settings.migration,
        })
    }

    /// Checks whether a change is permitted: refuses a change that is not sealed if the store
    /// contains sealed data.
    pub(crate) async fn admit(&self, change: SealedChange) -> Result<(), StoreError> {
        let read = async {
            let query = Query { sql: &self.statements.holds_sealed, values: &[] };
            let row = self.change(SEAL_MARK, true, query).await?;
            row.try_get(0).map_err(|error| StoreError::backend(SEAL_MARK, false, error))
        };
        let set = async {
            let query = Query { sql: &self.statements.set_holds_sealed, values: &[] };
            self.execute(SEAL_MARK, true, query).await.map(drop)
        };
        self.seal_mark.admit(change, read, set).await
    }

    /// Returns an idle connection of the pool that has not reported an error, or opens a new one.
    pub(crate) async fn get(&self) -> Result<Object, Failure> {
        let client = self.pool.get().await.map_err(Failure::of_pool);
        self.count();
        client
    }

    /// Updates the gauge of open connections. The pool does not report when it closes a connection.
    fn count(&self) {
        if is_recorded() {
            let open = self.pool.status().size;
            let counted = CONNECTIONS.hold(open as u64, &[(label::SYSTEM, Some(SYSTEM))]);
            *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        }
    }

    /// Executes several queries of one scope in one round trip and one snapshot. Returns the rows
    /// of each query.
    pub(crate) async fn read<const COUNT: usize>(
        &self,
        action: &'static str,
        scope: &[u8],
        queries: [Query<'_>; COUNT],
    ) -> Result<[Vec<Row>; COUNT], StoreError> {
        self.persist(action, true, || self.read_once(Some(scope), queries)).await
    }

    /// Executes queries over all scopes, as [`read`](Self::read) does for one scope.
    pub(crate) async fn read_all_scopes<const COUNT: usize>(
        &self,
        action: &'static str,
        queries: [Query<'_>; COUNT],
    ) -> Result<[Vec<Row>; COUNT], StoreError> {
        self.persist(action, true, || self.read_once(None, queries)).await
    }

    /// Executes a change in one round trip, as a transaction. `is_repeatable` means that a second
    /// execution has no effect, so that the statement can be sent again.
    pub(crate) async fn change(
        &self,
        action: &'static str,
        is_repeatable: bool,
        query: Query<'_>,
    ) -> Result<Row, StoreError> {
        self.persist(action, is_repeatable, || self.change_once(query)).await
    }

    /// Executes a change with a statement that returns no rows; see [`change`](Self::change).
    /// Returns the number of affected rows.
    pub(crate) async fn execute(
        &self,
        action: &'static str,
        is_repeatable: bool,
        query: Query<'_>,
    ) -> Result<u64, StoreError> {
        self.persist(action, is_repeatable, || self.execute_once(query)).await
    }

    /// Executes an attempt, and repeats the attempt while the server is unreachable, until the
    /// retry timeout. `is_repeatable` is true if an attempt that may have been executed can be
    /// repeated.
    pub(crate) async fn persist<Answer, Attempt>(
        &self,
        action: &'static str,
        is_repeatable: bool,
        attempt: impl FnMut() -> Attempt,
    ) -> Result<Answer, StoreError>
    where
        Attempt: Future<Output = Result<Answer, Failure>>,
    {
        let outcome =
            self.retry.run(attempt, |failure: &Failure| failure.may_repeat(is_repeatable)).await;
        outcome.map_err(|failure| failure.store_error(action, is_repeatable))
    }

    async fn read_once<const COUNT: usize>(
        &self,
        scope: Option<&[u8]>,
        queries: [Query<'_>; COUNT],
    ) -> Result<[Vec<Row>; COUNT], Failure> {
        let client = self.get().await?;
        let answers = self.read_over(&client, scope, queries).await;
        self.return_to_pool(client, answers)
    }

    async fn read_over<const COUNT: usize>(
        &self,
        client: &Object,
        scope: Option<&[u8]>,
        queries: [Query<'_>; COUNT],
    ) -> Result<[Vec<Row>; COUNT], Failure> {
        let over = Over::Connection(client);
        let mut statements = Vec::with_capacity(COUNT);
        for query in &queries {
            statements.push(self.statement(over, query.sql).await?);
        }
        let asked = queries.iter().zip(&statements);
        // `join_all` sends all statements in this order, before it waits for an answer.
        let answers = join_all(asked.map(|(query, statement)| statement.rows(over, query.values)));
        let answers = async {
            let (begun, answers, ended) = if COUNT == 1 && !self.names_scope {
                (Ok(()), answers.await, Ok(()))
            } else {
                let begin = self.begin_reading(scope);
                futures_util::join!(
                    client.batch_execute(&begin),
                    answers,
                    client.batch_execute("COMMIT")
                )
            };
            let mut all = std::array::from_fn(|_| Vec::new());
            for (rows, answer) in all.iter_mut().zip(answers) {
                *rows = answer?;
            }
            begun?;
            ended?;
            Ok(all)
        };
        self.in_time(answers).await
    }

    fn begin_reading(&self, scope: Option<&[u8]>) -> String {
        let mut sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned();
        if self.names_scope {
            sql.push(';');
            sql.push_str(&scope.map_or_else(|| NAME_ALL_SCOPES.to_owned(), name_scope));
        }
        sql
    }

    /// Returns the statement that sets the scope at the beginning of a transaction; `None` if the
    /// tables have no policies.
    pub(crate) fn begin_writing(&self, scope: &[u8]) -> Option<String> {
        self.names_scope.then(|| name_scope(scope))
    }

    async fn change_once(&self, query: Query<'_>) -> Result<Row, Failure> {
        let client = self.get().await?;
        let answer = self.change_over(&client, query).await;
        self.return_to_pool(client, answer)
    }

    async fn change_over(&self, client: &Object, query: Query<'_>) -> Result<Row, Failure> {
        let over = Over::Connection(client);
        let statement = self.statement(over, query.sql).await?;
        let rows = self.in_time(statement.rows(over, query.values)).await?;
        rows.into_iter().next().ok_or_else(Failure::no_row)
    }

    async fn execute_once(&self, query: Query<'_>) -> Result<u64, Failure> {
        let client = self.get().await?;
        let over = Over::Connection(&client);
        let answer = match self.statement(over, query.sql).await {
            Ok(statement) => self.in_time(statement.execute(over, query.values)).await,
            Err(failure) => Err(failure),
        };
        self.return_to_pool(client, answer)
    }

    /// Waits for an answer, but no longer than the statement timeout plus [`TRANSFER_TIME`].
    pub(crate) async fn in_time<Answer>(
        &self,
        answer: impl Future<Output = Result<Answer, tokio_postgres::Error>>,
    ) -> Result<Answer, Failure> {
        let limit = self.statement_timeout.saturating_add(TRANSFER_TIME);
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.map_err(Failure::of_statement),
            Err(_) => Err(Failure::no_answer()),
        }
    }

    /// Waits for an answer to a statement before a change, or to a rollback. An error means that
    /// nothing was changed.
    pub(crate) async fn before<Answer>(
        &self,
        answer: impl Future<Output = Result<Answer, tokio_postgres::Error>>,
    ) -> Result<Answer, Failure> {
        self.in_time(answer).await.map_err(Failure::before_statement)
    }

    /// Returns a connection to the pool. If the server does not answer or has become read-only,
    /// closes this connection and all idle ones instead.
    pub(crate) fn return_to_pool<Answer>(
        &self,
        client: Object,
        outcome: Result<Answer, Failure>,
    ) -> Result<Answer, Failure> {
        if outcome.as_ref().is_err_and(Failure::closes_idle_connections) {
            drop(Object::take(client));
            self.pool.retain(|_, _| false);
            self.count();
        }
        outcome
    }
}

#[cfg(feature = "delivery")]
impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The statement that allows a transaction to query the directory (descriptions, times and counts)
/// over all scopes.
const NAME_ALL_SCOPES: &str = "SELECT set_config('tower_chat.all_scopes', 'on', true)";

/// Returns the statement that sets the scope of a transaction for the policies of the tables.
fn name_scope(scope: &[u8]) -> String {
    let hex: String = scope.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("SELECT set_config('tower_chat.scope', '\\x{hex}', true)")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{PostgresOptions, schema::Layout, tls};

    fn connections(options: &PostgresOptions) -> Connections {
        let layout = Layout { schema: "s".to_owned(), partitions: None, row_level_security: false };
        let config: Config = "host=localhost sslmode=disable".parse().unwrap();
        let tls = tls::connect(&config, None).unwrap();
        Connections::new(config, tls, Statements::new(&layout), options).unwrap()
    }

    /// Executes a request whose first `silent` attempts receive no answer. Returns the number of
    /// attempts, and whether the last attempt was answered.
    async fn attempts(options: PostgresOptions, silence: Duration, silent: u32) -> (u32, bool) {
        let connections = connections(&options);
        let mut attempts = 0;
        let attempt = || {
            attempts += 1;
            let is_silent = attempts <= silent;
            async move {
                if !is_silent {
                    return Ok(());
                }
                tokio::time::sleep(silence).await;
                Err(Failure::no_answer())
            }
        };
        let outcome = connections.persist("ask", true, attempt).await;
        (attempts, outcome.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn the_retry_timeout_begins_with_the_first_failure() {
        let options = PostgresOptions::new();
        let silence = options.statement_timeout + TRANSFER_TIME;
        assert!(silence > options.retry_timeout);
        assert_eq!(attempts(options.clone(), silence, 1).await, (2, true));
        assert_eq!(attempts(options.clone(), silence, 2).await, (2, false));
        let once = options.with_retry_timeout(Duration::ZERO);
        assert_eq!(attempts(once, silence, 1).await, (1, false));
    }

    #[tokio::test(start_paused = true)]
    async fn the_retry_timeout_may_be_unlimited() {
        let options = PostgresOptions::new().with_retry_timeout(Duration::MAX);
        assert_eq!(attempts(options, Duration::from_secs(35), 100).await, (101, true));
    }
}
