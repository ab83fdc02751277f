//! A PostgreSQL server fails during writes, and its replica is promoted.

use tokio::task::block_in_place;
use tower_chat_core::{ConversationKey, store::StoreError};
use tower_chat_postgres::{PostgresOptions, PostgresStore};
use tower_chat_testkit::server::PostgresServer;

use super::{
    Plant, Search, Totals, Writers, append, check, connect, failed, stale, started, until_answered,
};
use crate::{Failure, Figures};

/// The number of writes that are acknowledged while the replica is disconnected.
const AHEAD: u64 = 40;

/// The kind of replication of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replication {
    /// Commits do not wait for the replica. The replica is connected until the primary fails.
    Asynchronous,
    /// As `Asynchronous`, but the replica is disconnected before the primary is killed.
    AsynchronousCut,
    /// Commits wait for the replica.
    Synchronous,
}

pub(super) async fn run(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    use Replication::{Asynchronous, AsynchronousCut, Synchronous};
    for replication in [Asynchronous, AsynchronousCut, Synchronous] {
        fail_over(search, replication, figures).await?;
    }
    Ok(())
}

async fn fail_over(
    search: Search,
    replication: Replication,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let primary = started(block_in_place(PostgresServer::start))?;
    let replica = block_in_place(|| primary.replica());
    if replication == Replication::Synchronous {
        set(&primary, "synchronous_standby_names", "*").await?;
    }
    // The connection uses the first server in the list that accepts writes.
    let address = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable\
         &target_session_attrs=read-write&connect_timeout=5",
        primary.port(),
        replica.port()
    );
    let store = open(&address, PostgresStore::options()).await?;
    let writers = Writers::start(search, &store);
    writers.run_phase(search).await;
    let mut stale =
        stale::Stale::begin(&store, ConversationKey::new("stale", "conversation")).await?;
    if replication == Replication::AsynchronousCut {
        wait_for_replica(&primary, &replica).await?;
        set(&replica, "primary_conninfo", "").await?;
        until(&replica, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)").await?;
        stale.add_lost_writes(&store).await?;
        writers.progress(AHEAD).await;
    }
    block_in_place(|| {
        primary.kill();
        replica.promote();
    });
    if replication == Replication::AsynchronousCut {
        let replica = open(&replica.address("postgres"), PostgresStore::options()).await?;
        stale.assert_refused(search, &replica).await?;
    }
    writers.run_phase(search).await;
    let logs = writers.stop().await?;
    check(search, &store, &logs).await?;
    let totals = Totals::of(&logs);
    let name = match replication {
        Replication::Asynchronous => "asynchronous",
        Replication::AsynchronousCut => "asynchronous, cut",
        Replication::Synchronous => "synchronous",
    };
    match replication {
        Replication::Synchronous if totals.lost_writes > 0 => {
            return Err(search.found(format!("{} writes were lost", totals.lost_writes)));
        }
        Replication::AsynchronousCut if totals.lost_writes == 0 => {
            return Err(search.found("no writer got a conflict for its lost writes".to_owned()));
        }
        _ => {}
    }
    totals.figures(&format!("replica promoted, {name}"), figures);
    restart_primary(search, &primary, &replica).await
}

/// Restarts the failed primary, and appends to it as a writer that has not noticed the failover.
/// The append must fail.
async fn restart_primary(
    search: Search,
    primary: &PostgresServer,
    replica: &PostgresServer,
) -> Result<(), Failure> {
    block_in_place(|| {
        if search.plant == Some(Plant::Unfenced) {
            primary.start_again();
        } else {
            primary.start_again_as_replica_of(replica);
        }
    });
    let options = PostgresStore::options().with_migration(false);
    let store = open(&primary.address("postgres"), options).await?;
    let key = ConversationKey::new("scale-out", "writer 0");
    let head =
        until_answered(|| async { tower_chat_core::store::HistoryStore::head(&store, &key).await })
            .await?;
    match append(&store, stale::write(&key, head.revision, "on the failed primary")).await {
        Err(StoreError::ReadOnly) => Ok(()),
        Err(error) => Err(failed("append at the failed primary", error)),
        Ok(_) => Err(search.found("the failed primary has accepted a write".to_owned())),
    }
}

async fn open(address: &str, options: PostgresOptions) -> Result<PostgresStore, Failure> {
    options.connect(address).await.map_err(|error| failed("open the store", error))
}

async fn set(server: &PostgresServer, name: &str, value: &str) -> Result<(), Failure> {
    let client = connect(server).await?;
    for sql in [format!("ALTER SYSTEM SET {name} = '{value}'"), "SELECT pg_reload_conf()".into()] {
        client.batch_execute(&sql).await.map_err(|error| failed(&sql, error))?;
    }
    Ok(())
}

/// Waits until the replica has applied all earlier writes.
async fn wait_for_replica(
    primary: &PostgresServer,
    replica: &PostgresServer,
) -> Result<(), Failure> {
    let position = "SELECT pg_current_wal_lsn()::text";
    let row = connect(primary).await?.query_one(position, &[]).await;
    let position: String =
        row.map_err(|error| failed("read the position of the log", error))?.get(0);
    until(replica, &format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn")).await
}

async fn until(server: &PostgresServer, question: &str) -> Result<(), Failure> {
    let client = connect(server).await?;
    loop {
        let row = client.query_one(question, &[]).await;
        if row.map_err(|error| failed(question, error))?.get(0) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
