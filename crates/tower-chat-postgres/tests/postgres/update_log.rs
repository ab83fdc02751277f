//! Tests of the update log.

use std::time::{Duration, Instant};

use tower_chat_core::{ConversationKey, RunId};
use tower_chat_delivery::{
    Erase, RunKey, RunState, StoredUpdate, UpdateLog, UpdateLogOptions, UpdatePosition,
};
use tower_chat_postgres::{OpenError, PostgresOptions, PostgresUpdateLog};

use tower_chat_testkit::server::{PgBouncer, PoolMode, required};

use crate::common::{open, options, proxy::Proxy, quoted, raw, schema, server};

mod contract {
    use crate::common::{options, server};
    use tower_chat_postgres::PostgresUpdateLog;

    tower_chat_delivery::update_log_contract!(log_options => {
        let address = server().address("postgres");
        PostgresUpdateLog::connect_with(&address, options(), log_options).await.unwrap()
    });
}

/// Tests the contract of update logs for a log that shares the connections of a store with
/// row-level security.
mod beside_a_store {
    use crate::common::{options, ordinary_user};
    use tower_chat_postgres::PostgresUpdateLog;

    tower_chat_delivery::update_log_contract!(log_options => {
        let options = options().with_row_level_security(true);
        let store = options.connect(&ordinary_user().await).await.unwrap();
        PostgresUpdateLog::from_store(&store, log_options).await.unwrap()
    });
}

const LEASE: Duration = Duration::from_secs(600);
/// The maximum time of a wait in these tests. If the log is correct, each wait ends long before.
const LONG: Duration = Duration::from_secs(120);

async fn connect(address: &str, options: PostgresOptions) -> PostgresUpdateLog {
    PostgresUpdateLog::connect_with(address, options, UpdateLogOptions::default()).await.unwrap()
}

/// Begins a run in the log, appends one update, and returns the key of the run.
async fn begun(log: &PostgresUpdateLog) -> RunKey {
    let run = RunKey::new(ConversationKey::new("alice", "wardrobe"), RunId::new());
    log.begin(&run, 1, LEASE).await.unwrap();
    append(log, &run, 0).await;
    run
}

async fn append(log: &PostgresUpdateLog, run: &RunKey, index: u32) {
    let update = StoredUpdate::new(index.to_string());
    log.append(run, UpdatePosition::new(1, index), &[update], None).await.unwrap();
}

/// Waits until the log receives notifications. Until then, waiting readers return every 250 ms.
async fn listens(log: &PostgresUpdateLog, run: &RunKey) {
    let begun = Instant::now();
    while tokio::time::timeout(Duration::from_secs(2), wait(log, run)).await.is_ok() {
        assert!(begun.elapsed() < LONG, "no notification arrives");
    }
}

async fn wait(log: &PostgresUpdateLog, run: &RunKey) {
    log.wait(run, UpdatePosition::new(1, 0), LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_log_wakes_the_readers_of_another_update_log_on_the_server() {
    let options = options();
    let address = server().address("postgres");
    let (writer, reader) =
        (connect(&address, options.clone()).await, connect(&address, options).await);
    let run = begun(&writer).await;
    listens(&reader, &run).await;
    let (other, waiting) = (begun(&writer).await, wait(&reader, &run));
    let mut waiting = std::pin::pin!(waiting);
    // A change of another run must not end the wait.
    append(&writer, &other, 1).await;
    assert!(tokio::time::timeout(Duration::from_secs(1), waiting.as_mut()).await.is_err());
    append(&writer, &run, 1).await;
    tokio::time::timeout(LONG / 2, waiting).await.expect("the reader is woken");
    let waiting = reader.wait(&run, UpdatePosition::new(1, 1), LONG);
    let erasing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        writer.erase(Erase::Scope("alice")).await.unwrap()
    };
    let woken = async { tokio::time::timeout(LONG / 2, waiting).await.expect("a wait").unwrap() };
    assert_eq!(tokio::join!(woken, erasing), ((), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_survives_the_loss_of_its_connection() {
    let address = format!("{}&application_name=loses", server().address("postgres"));
    let log = connect(&address, options()).await;
    let run = begun(&log).await;
    listens(&log, &run).await;
    let kill = async {
        let client = raw(&server().address("postgres")).await;
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE query LIKE 'LISTEN %' AND application_name = 'loses'";
        client.batch_execute(sql).await.unwrap();
    };
    // The loss of the connection must end the wait. Otherwise the reader could miss an update.
    let woken = async { tokio::time::timeout(LONG / 2, wait(&log, &run)).await.expect("a wait") };
    tokio::join!(woken, kill);
    listens(&log, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_log_replaces_a_silent_connection() {
    let (proxy, address) = Proxy::start(&server().address("postgres")).await;
    let log = connect(&address, options().with_statement_timeout(Duration::from_secs(5))).await;
    let run = begun(&log).await;
    listens(&log, &run).await;
    let before = proxy.connections();
    proxy.fall_silent_after(0);
    let woken = tokio::time::timeout(LONG / 2, wait(&log, &run));
    woken.await.expect("the missing heartbeat ends the wait");
    listens(&log, &run).await;
    assert!(proxy.connections() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_answer_was_lost_is_stored_once() {
    let (proxy, address) = Proxy::start(&server().address("postgres")).await;
    let log = connect(&address, options().with_max_connections(1)).await;
    let run = begun(&log).await;
    append(&log, &run, 1).await;
    proxy.lose_the_answer_after(1);
    append(&log, &run, 2).await;
    assert_eq!(proxy.lost(), 1);
    let page = log.read(&run, UpdatePosition::START, 10).await.unwrap();
    let texts: Vec<&str> = page.updates.iter().map(|update| update.update.data()).collect();
    assert_eq!(texts, ["0", "1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_log_creates_its_tables_only_with_migration() {
    let schema = schema();
    let options = options().with_schema(&*schema);
    let address = server().address("postgres");
    let without = options.clone().with_migration(false);
    let limits = UpdateLogOptions::default;
    let refused = PostgresUpdateLog::connect_with(&address, without.clone(), limits()).await;
    assert!(matches!(refused, Err(OpenError::NoTables { .. })), "{refused:?}");
    // Several processes could open logs and stores at the same time.
    let logs = std::array::from_fn::<_, 3, _>(|_| connect(&address, options.clone()));
    futures_util::future::join(futures_util::future::join_all(logs), open(options)).await;
    connect(&address, without).await;
}

/// A pooler that shares connections between transactions does not forward notifications.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_notifications_is_polled() {
    let pooler = PgBouncer::start(server(), PoolMode::Transaction, 2);
    let pooler = required(pooler, "the update log behind PgBouncer");
    let options = options().with_prepared_statements(false);
    let log = connect(&pooler.address("postgres"), options).await;
    let run = begun(&log).await;
    for _ in 0..30 {
        tokio::time::timeout(LONG / 2, wait(&log, &run)).await.expect("the wait ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn erasing_a_run_also_erases_updates_that_are_appended_at_the_same_time() {
    let schema = schema();
    let log = connect(&server().address("postgres"), options().with_schema(&*schema)).await;
    for _ in 0..20 {
        let run = begun(&log).await;
        let appending = async {
            for index in 1..10 {
                let update = StoredUpdate::new("a secret");
                let first = UpdatePosition::new(1, index);
                if log.append(&run, first, &[update], None).await.is_err() {
                    break;
                }
            }
        };
        tokio::join!(appending, async { log.erase(Erase::Scope("alice")).await.unwrap() });
        let page = log.read(&run, UpdatePosition::START, 10).await.unwrap();
        assert_eq!(page.state, RunState::Unknown);
    }
    let client = raw(&server().address("postgres")).await;
    let sql = format!("SELECT count(*) FROM {}.run_log_updates", quoted(&schema));
    let left: i64 = client.query_one(&sql, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}
