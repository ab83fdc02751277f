//! The temporary server, and its content before a measurement.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use tokio_postgres::{Client, NoTls};
use tower_chat::{BoxError, ConversationKey, HistoryStore};
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::server::PostgresServer;

use crate::{files, workload};

/// Starts a server that syncs to a disk. Returns `None` if PostgreSQL is not installed and not
/// required.
pub(crate) fn start() -> Result<Option<PostgresServer>, BoxError> {
    match PostgresServer::setup().durable_under(folder()?).start() {
        Ok(server) => Ok(Some(server)),
        Err(missing) => crate::skipped(missing).map(|()| None),
    }
}

pub(crate) fn address(server: &PostgresServer, setting: &str) -> String {
    format!("{}&options=-c%20{setting}", server.address("postgres"))
}

/// Opens a store in its own schema.
pub(crate) async fn store(address: &str, schema: &str) -> Result<PostgresStore, BoxError> {
    Ok(PostgresStore::options().with_schema(schema).connect(address).await?)
}

pub(crate) async fn fill(
    store: &PostgresStore,
    key: &ConversationKey,
    history: usize,
) -> Result<(), BoxError> {
    if history > 0 {
        let write = workload::first_write(key, workload::stored_messages(history));
        store.append(store.reserve().await?, vec![write]).await?;
    }
    Ok(())
}

pub(crate) struct Log(Client);

impl Log {
    pub(crate) async fn connect(server: &PostgresServer) -> Result<Self, BoxError> {
        let (client, connection) =
            tokio_postgres::connect(&server.address("postgres"), NoTls).await?;
        // The task ends when the client is dropped.
        tokio::spawn(connection);
        Ok(Self(client))
    }

    pub(crate) async fn checkpoint(&self) -> Result<(), BoxError> {
        Ok(self.0.batch_execute("CHECKPOINT").await?)
    }

    pub(crate) async fn position(&self) -> Result<f64, BoxError> {
        let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8";
        Ok(self.0.query_one(sql, &[]).await?.try_get(0)?)
    }

    pub(crate) async fn bytes_since(&self, position: f64) -> Result<f64, BoxError> {
        Ok(self.position().await? - position)
    }

    /// Returns the number of syncs of the log since the server was created, as far as the server
    /// has published them.
    pub(crate) async fn syncs(&self) -> Result<i64, BoxError> {
        let version = "SELECT current_setting('server_version_num')::int";
        let version: i32 = self.0.query_one(version, &[]).await?.try_get(0)?;
        let sql = match version {
            ..180_000 => "SELECT wal_sync FROM pg_stat_wal",
            _ => "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'",
        };
        Ok(self.0.query_one(sql, &[]).await?.try_get(0)?)
    }

    /// Waits until no other client is connected.
    pub(crate) async fn wait_for_others_to_go(&self) -> Result<(), BoxError> {
        let sql = "SELECT count(*) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        while self.0.query_one(sql, &[]).await?.try_get::<_, i64>(0)? > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// Returns a folder on a real disk that the account of the server can access.
fn folder() -> Result<PathBuf, BoxError> {
    let built = files::build_folder()?;
    let may_be_entered = |folder: &std::path::Path| {
        folder.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
    };
    if built.ancestors().all(may_be_entered) {
        return Ok(built);
    }
    let other = PathBuf::from("/var/tmp");
    eprintln!(
        "not all users can access {}: the server stores its data in {}",
        built.display(),
        other.display()
    );
    Ok(other)
}
