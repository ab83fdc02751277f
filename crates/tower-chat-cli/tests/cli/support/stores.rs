//! Runs a test with every kind of store that the command can open.

use std::{
    collections::BTreeMap,
    future::Future,
    path::Path,
    process::{Command, Output},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use rusqlite::{Connection, OpenFlags, types::Value};
use tower_chat::HistoryStore;
use tower_chat_delivery::{SqliteUpdateLog, UpdateLog, UpdateLogOptions};
use tower_chat_encrypted::{EncryptedStore, EncryptedUpdateLog, MasterKeys, SecretKey};
use tower_chat_postgres::{PostgresStore, PostgresUpdateLog};
use tower_chat_redis::{RedisStore, RedisUpdateLog};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::{
    server::{Missing, PgBouncer, PoolMode, PostgresServer, RedisServer},
    skip,
};

use super::{execute, stderr, tower_chat};

static POSTGRES: LazyLock<Result<PostgresServer, Missing>> = LazyLock::new(PostgresServer::start);
static REDIS: LazyLock<Result<RedisServer, Missing>> = LazyLock::new(RedisServer::start);

/// The key of [`Kind::Encrypted`].
const KEY: [u8; 32] = [0x1f; 32];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    /// A SQLite file whose content is encrypted.
    Encrypted,
    Postgres,
    Redis,
}

/// A store that is empty at first and that no other test uses.
pub(crate) struct TestStore {
    pub(crate) kind: Kind,
    /// Whether the content is encrypted, as in every store of [`Kind::Encrypted`].
    is_encrypted: bool,
    folder: tempfile::TempDir,
    /// The name of the schema in PostgreSQL, or the prefix of the keys in Redis.
    name: String,
}

/// Runs a test with an empty store of each kind, one kind after the other.
pub(crate) fn each_store(test: impl Fn(&TestStore)) {
    for kind in [Kind::Sqlite, Kind::Encrypted, Kind::Postgres, Kind::Redis] {
        if TestStore::is_missing(kind) {
            continue;
        }
        // If the test fails, its output shows the kind of the store.
        eprintln!("on {kind:?}");
        test(&TestStore::new(kind));
    }
}

impl TestStore {
    /// Returns whether the server for this kind of store is missing, and prints the skipped test.
    pub(crate) fn is_missing(kind: Kind) -> bool {
        let missing = match kind {
            Kind::Sqlite | Kind::Encrypted => None,
            Kind::Postgres => POSTGRES.as_ref().err(),
            Kind::Redis => REDIS.as_ref().err(),
        };
        if let Some(missing) = missing {
            skip(&format!("the command on {kind:?}"), missing);
        }
        missing.is_some()
    }

    pub(crate) fn new(kind: Kind) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let is_encrypted = kind == Kind::Encrypted;
        Self { kind, is_encrypted, folder: tempfile::tempdir().unwrap(), name }
    }

    pub(crate) fn encrypted(kind: Kind) -> Self {
        Self { is_encrypted: true, ..Self::new(kind) }
    }

    /// Returns the address of the store, as the command line names it.
    pub(crate) fn url(&self) -> String {
        match self.kind {
            Kind::Sqlite | Kind::Encrypted => format!("sqlite:{}", self.path().display()),
            Kind::Postgres => with_parameter(&postgres_address(), "schema", &self.name),
            Kind::Redis => with_parameter(&redis_address(), "prefix", &format!("{}:", self.name)),
        }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("chat.db")
    }

    /// Returns the name of the schema in PostgreSQL, or the prefix of the keys in Redis.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Executes SQL on the server of the store, without the store.
    pub(crate) fn execute_sql(&self, sql: &str) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let address = postgres_address();
            let (client, connection) =
                tokio_postgres::connect(&address, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
        });
    }

    /// Starts a pooler in transaction mode with one connection. Returns the pooler and the address
    /// of this store through it, or `None` if no pooler is installed.
    pub(crate) fn behind_a_pooler(&self) -> Option<(PgBouncer, String)> {
        match PgBouncer::start(POSTGRES.as_ref().unwrap(), PoolMode::Transaction, 1) {
            Ok(pooler) => {
                let address = with_parameter(&pooler.address("postgres"), "schema", &self.name);
                Some((pooler, address))
            }
            Err(missing) => {
                skip("the command behind PgBouncer", missing);
                None
            }
        }
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Returns the command with these arguments, which uses this store and its keys.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tower_chat(arguments);
        command.args(["--store", &self.url()]);
        if self.is_encrypted {
            let digits: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
            command.env("TOWER_CHAT_KEYS", format!("test:{digits}"));
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command, and returns its standard output. Asserts that the command succeeds.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{:?}: {}", self.kind, stderr(&output));
        super::stdout(&output)
    }

    /// Makes a message in the scope `play` unreadable.
    pub(crate) fn spoil(&self, id: &str, sequence: u64) {
        let of_file =
            format!("UPDATE messages SET body = '{{' WHERE place = {}", row_key(id, sequence));
        let of_server =
            "UPDATE {schema}.messages SET body = '{' WHERE conversation = $1 AND sequence = $2";
        self.damage(id, sequence, &of_file, of_server, |connection, messages| {
            let number = sequence.to_string();
            let stored: Vec<u8> =
                redis::cmd("HGET").arg(messages).arg(&number).query(connection).unwrap();
            // The new value consists of the id of the message and the beginning of its content.
            redis::cmd("HSET")
                .arg(messages)
                .arg(&number)
                .arg(&stored[..21])
                .exec(connection)
                .unwrap();
        });
    }

    /// Deletes a message in the scope `play`.
    pub(crate) fn lose(&self, id: &str, sequence: u64) {
        let of_file = format!("DELETE FROM messages WHERE place = {}", row_key(id, sequence));
        let of_server = "DELETE FROM {schema}.messages WHERE conversation = $1 AND sequence = $2";
        self.damage(id, sequence, &of_file, of_server, |connection, messages| {
            redis::cmd("HDEL").arg(messages).arg(sequence).exec(connection).unwrap();
        });
    }

    /// Swaps the contents of two messages in a SQLite file.
    pub(crate) fn swap(&self, id: &str, one: u64, other: u64) {
        let [one, other] = [one, other].map(|sequence| row_key(id, sequence));
        let both = format!("SELECT place, body FROM messages WHERE place IN ({one}, {other})");
        let sql = format!(
            "UPDATE messages SET body = other.body FROM ({both}) AS other
             WHERE messages.place IN ({one}, {other}) AND other.place <> messages.place"
        );
        assert_eq!(execute(&self.path(), &sql), 2);
    }

    /// Sets the format of a conversation in the scope `play` in Redis to that of a newer release.
    pub(crate) fn make_format_newer(&self, id: &str) {
        let client = redis::Client::open(redis_address()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let head = format!("{}::{{play/{id}}}:head", self.name);
        redis::cmd("HSET").arg(head).arg("format").arg("99").exec(&mut connection).unwrap();
    }

    fn damage(
        &self,
        id: &str,
        sequence: u64,
        of_file: &str,
        of_server: &str,
        of_redis: impl Fn(&mut redis::Connection, &str),
    ) {
        match self.kind {
            Kind::Sqlite | Kind::Encrypted => assert_eq!(execute(&self.path(), of_file), 1),
            Kind::Postgres => {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let sql = of_server.replace("{schema}", &self.name);
                runtime.enable_all().build().unwrap().block_on(async {
                    let connected =
                        tokio_postgres::connect(&postgres_address(), tokio_postgres::NoTls).await;
                    let (client, connection) = connected.unwrap();
                    tokio::spawn(connection);
                    let sequence = i64::try_from(sequence).unwrap();
                    let changed = client.execute(&sql, &[&id.as_bytes(), &sequence]).await.unwrap();
                    assert_eq!(changed, 1);
                });
            }
            Kind::Redis => {
                let client = redis::Client::open(redis_address()).unwrap();
                let mut connection = client.get_connection().unwrap();
                let messages = format!("{}::{{play/{id}}}:messages", self.name);
                of_redis(&mut connection, &messages);
            }
        }
    }

    /// Opens the store in this process, calls a function with the store, and closes the store.
    pub(crate) fn with<R, F: Future<Output = R>>(
        &self,
        act: impl FnOnce(Arc<dyn HistoryStore>) -> F,
    ) -> R {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = self.open().await;
            let done = act(store.clone()).await;
            store.close().await.unwrap();
            done
        })
    }

    /// Reads all stored data without the store.
    pub(crate) fn contents(&self) -> Vec<String> {
        match self.kind {
            Kind::Sqlite | Kind::Encrypted => rows_of_file(&self.path()),
            Kind::Postgres => self.rows_of_schema(),
            Kind::Redis => {
                let client = redis::Client::open(redis_address()).unwrap();
                let mut connection = client.get_connection().unwrap();
                let pattern = format!("{}:*", self.name);
                let mut keys: Vec<Vec<u8>> =
                    redis::cmd("KEYS").arg(pattern).query(&mut connection).unwrap();
                // These keys expire after the creation of a conversation.
                keys.retain(|key| !key.windows(6).any(|part| part == b":made:"));
                keys.sort_unstable();
                let mut entry = |key: &Vec<u8>| {
                    let name = String::from_utf8_lossy(key);
                    // The server may return the fields of a hash in any order.
                    let mut fields: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
                    let mut value: Vec<u8> = Vec::new();
                    match name.ends_with(":head") || name.ends_with(":directory") {
                        true => {
                            let all = redis::cmd("HGETALL").arg(key).query(&mut connection);
                            fields = all.unwrap();
                        }
                        false => {
                            let dump = redis::cmd("DUMP").arg(key).query(&mut connection);
                            value = dump.unwrap();
                        }
                    }
                    format!("{name}: {fields:?} {value:?}")
                };
                keys.iter().map(&mut entry).collect()
            }
        }
    }

    fn rows_of_schema(&self) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connected =
                tokio_postgres::connect(&postgres_address(), tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            tokio::spawn(connection);
            let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY 1";
            let mut rows = Vec::new();
            for table in client.query(tables, &[&self.name]).await.unwrap() {
                let table: String = table.get(0);
                let sql = format!("SELECT t::text FROM {}.{table} AS t ORDER BY 1", self.name);
                let found = client.query(&sql, &[]).await.unwrap();
                let row = |row: &tokio_postgres::Row| format!("{table}: {}", row.get::<_, &str>(0));
                rows.extend(found.iter().map(row));
            }
            rows
        })
    }

    async fn open(&self) -> Arc<dyn HistoryStore> {
        let inside = self.open_inside().await;
        match self.keys() {
            Some(keys) => Arc::new(EncryptedStore::new(inside, keys)),
            None => inside,
        }
    }

    pub(crate) fn keys(&self) -> Option<MasterKeys> {
        let keys = || MasterKeys::new("test", SecretKey::from_bytes(KEY)).unwrap();
        self.is_encrypted.then(keys)
    }

    /// Opens the default update log of the store, and creates the log if it is missing.
    pub(crate) async fn open_updates(&self) -> Arc<dyn UpdateLog> {
        let options = UpdateLogOptions::default();
        let log: Arc<dyn UpdateLog> = match self.kind {
            Kind::Sqlite | Kind::Encrypted => {
                let path = self.folder.path().join("chat.db-updates");
                Arc::new(SqliteUpdateLog::open(path).await.unwrap())
            }
            Kind::Postgres => {
                let server = PostgresStore::options().with_schema(&self.name);
                let address = postgres_address();
                Arc::new(PostgresUpdateLog::connect_with(&address, server, options).await.unwrap())
            }
            Kind::Redis => {
                let server = RedisStore::options().with_prefix(format!("{}:", self.name));
                let address = redis_address();
                Arc::new(RedisUpdateLog::connect_with(&address, server, options).await.unwrap())
            }
        };
        match self.keys() {
            Some(keys) => Arc::new(EncryptedUpdateLog::new(log, keys)),
            None => log,
        }
    }

    async fn open_inside(&self) -> Arc<dyn HistoryStore> {
        match self.kind {
            Kind::Sqlite | Kind::Encrypted => {
                Arc::new(SqliteStore::open(self.path()).await.unwrap())
            }
            Kind::Postgres => {
                let options = PostgresStore::options().with_schema(&self.name);
                Arc::new(options.connect(&postgres_address()).await.unwrap())
            }
            Kind::Redis => {
                let options = RedisStore::options().with_prefix(format!("{}:", self.name));
                Arc::new(options.connect(&redis_address()).await.unwrap())
            }
        }
    }
}

/// Returns every row of every table in a SQLite file.
fn rows_of_file(path: &Path) -> Vec<String> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut tables = connection.prepare(tables).unwrap();
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut rows = Vec::new();
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let value = |column| format!("{:?}", row.get::<_, Value>(column).unwrap());
            Ok(format!("{table}: {}", (0..columns).map(value).collect::<Vec<_>>().join(", ")))
        };
        rows.extend(statement.query_map([], row).unwrap().map(Result::unwrap));
    }
    rows
}

/// Returns the row key of a message in the scope `play` of a SQLite file.
fn row_key(id: &str, sequence: u64) -> String {
    let number =
        format!("SELECT id FROM conversations WHERE scope = 'play' AND conversation = '{id}'");
    format!("(({number}) << 32) + {sequence}")
}

fn with_parameter(address: &str, name: &str, value: &str) -> String {
    let separator = if address.contains('?') { '&' } else { '?' };
    format!("{address}{separator}{name}={value}")
}

fn postgres_address() -> String {
    POSTGRES.as_ref().unwrap().address("postgres")
}

fn redis_address() -> String {
    REDIS.as_ref().unwrap().address(0)
}
