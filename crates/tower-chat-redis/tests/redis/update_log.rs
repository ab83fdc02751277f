//! Tests of the update log.

use std::time::{Duration, Instant};

use tower_chat_core::{ConversationKey, RunId};
use tower_chat_delivery::{
    Erase, RunKey, RunState, StoredUpdate, UpdateLog, UpdateLogOptions, UpdatePosition,
};
use tower_chat_redis::{RedisOptions, RedisUpdateLog};

use crate::common::{address, ask, names, options, prefix, proxy::Proxy, raw, start};

mod contract {
    use crate::common::{address, options};
    use tower_chat_redis::RedisUpdateLog;

    tower_chat_delivery::update_log_contract!(log_options => {
        RedisUpdateLog::connect_with(&address(), options(), log_options).await.unwrap()
    });
}

const LEASE: Duration = Duration::from_secs(600);
/// The maximum time of a wait in these tests. If the log is correct, each wait ends long before.
const LONG: Duration = Duration::from_secs(120);

async fn connect(address: &str, options: RedisOptions) -> RedisUpdateLog {
    RedisUpdateLog::connect_with(address, options, UpdateLogOptions::default()).await.unwrap()
}

/// Begins a run in the log, appends one update, and returns the key of the run.
async fn begun(log: &RedisUpdateLog, id: &str) -> RunKey {
    let run = RunKey::new(ConversationKey::new("alice", id), RunId::new());
    log.begin(&run, 1, LEASE).await.unwrap();
    append(log, &run, 0).await;
    run
}

async fn append(log: &RedisUpdateLog, run: &RunKey, index: u32) {
    let update = StoredUpdate::new(index.to_string());
    log.append(run, UpdatePosition::new(1, index), &[update], None).await.unwrap();
}

/// Waits until the log receives notifications. Until then, waiting readers return every 250 ms.
async fn listens(log: &RedisUpdateLog, run: &RunKey) {
    let begun = Instant::now();
    while tokio::time::timeout(Duration::from_secs(2), wait(log, run)).await.is_ok() {
        assert!(begun.elapsed() < LONG, "no notification arrives");
    }
}

async fn wait(log: &RedisUpdateLog, run: &RunKey) {
    log.wait(run, UpdatePosition::new(1, 0), LONG).await.unwrap();
}

/// Checks that a change through one log wakes a reader of the other log.
pub(crate) async fn check_that_a_log_wakes_readers(
    writer: &RedisUpdateLog,
    reader: &RedisUpdateLog,
) {
    let run = begun(writer, "wardrobe").await;
    listens(reader, &run).await;
    let (other, waiting) = (begun(writer, "weather").await, wait(reader, &run));
    let mut waiting = std::pin::pin!(waiting);
    // A change of another run must not end the wait.
    append(writer, &other, 1).await;
    assert!(tokio::time::timeout(Duration::from_secs(1), waiting.as_mut()).await.is_err());
    append(writer, &run, 1).await;
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
async fn an_update_log_wakes_the_readers_of_another_update_log_on_the_server() {
    let options = options();
    let writer = connect(&address(), options.clone()).await;
    check_that_a_log_wakes_readers(&writer, &connect(&address(), options).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_survives_the_loss_of_its_connection() {
    let server = start(&[]);
    let log = connect(&server.address(0), options()).await;
    let run = begun(&log, "wardrobe").await;
    listens(&log, &run).await;
    let kill = async {
        let mut connection = raw(&server.address(0)).await;
        let killed: u64 =
            ask(&mut connection, &["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
        assert_eq!(killed, 1);
    };
    // The loss of the connection must end the wait. Otherwise the reader could miss an update.
    let woken = async { tokio::time::timeout(LONG / 2, wait(&log, &run)).await.expect("a wait") };
    tokio::join!(woken, kill);
    listens(&log, &run).await;
}

/// The user may write keys, but not use channels. Readers must then poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_notifications_is_polled() {
    let server = start(&[]);
    let mut connection = raw(&server.address(0)).await;
    let user = ["ACL", "SETUSER", "silent", "on", ">secret", "allkeys", "allcommands"];
    let words = [&user[..], &["resetchannels"]].concat();
    ask::<()>(&mut connection, &words).await.unwrap();
    let address = server.address(0).replace("redis://", "redis://silent:secret@");
    let log = connect(&address, options()).await;
    let run = begun(&log, "wardrobe").await;
    for _ in 0..30 {
        tokio::time::timeout(LONG / 2, wait(&log, &run)).await.expect("the wait ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_answer_was_lost_is_stored_once() {
    let (proxy, address) = Proxy::start(&address()).await;
    let log = connect(&address, options().with_max_connections(1)).await;
    let run = begun(&log, "wardrobe").await;
    append(&log, &run, 1).await;
    proxy.lose_the_answer_after(1);
    append(&log, &run, 2).await;
    assert_eq!(proxy.lost(), 1);
    let page = log.read(&run, UpdatePosition::START, 10).await.unwrap();
    let texts: Vec<&str> = page.updates.iter().map(|update| update.update.data()).collect();
    assert_eq!(texts, ["0", "1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_a_run_expire() {
    let prefix = prefix();
    let log_options = UpdateLogOptions::default().with_retention(Duration::from_secs(3600));
    let server = options().with_prefix(&*prefix);
    let log = RedisUpdateLog::connect_with(&address(), server, log_options).await.unwrap();
    begun(&log, "wardrobe").await;
    let mut connection = raw(&address()).await;
    let mut expiring = 0;
    for name in names(&mut connection, &prefix).await {
        let left: i64 = ask(&mut connection, &["TTL", &name]).await.unwrap();
        // The index of all runs does not expire, and contains no updates.
        if !name.contains("{runs}") {
            let longest = i64::try_from((LEASE.as_secs()) + 3600).unwrap();
            assert!((1..=longest).contains(&left), "{name}: {left}");
            expiring += 1;
        }
    }
    assert_eq!(expiring, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_with_expired_keys_are_removed_from_the_index() {
    let prefix = prefix();
    let log_options = UpdateLogOptions::default().with_retention(Duration::from_millis(50));
    let server = options().with_prefix(&*prefix);
    let log = RedisUpdateLog::connect_with(&address(), server, log_options).await.unwrap();
    let runs = |id: &str| RunKey::new(ConversationKey::new("alice", id), RunId::new());
    log.begin(&runs("a"), 1, Duration::from_millis(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let last = runs("b");
    log.begin(&last, 1, LEASE).await.unwrap();
    let mut connection = raw(&address()).await;
    for index in ["times", "names"] {
        let key = format!("{prefix}:{{runs}}:{index}");
        let left: Vec<String> = ask(&mut connection, &["ZRANGE", &key, "0", "-1"]).await.unwrap();
        assert_eq!(left, [format!("alice/b/{}", last.run)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn erasing_the_updates_of_a_conversation_removes_all_its_keys() {
    let prefix = prefix();
    let log = connect(&address(), options().with_prefix(&*prefix)).await;
    let run = begun(&log, "wardrobe").await;
    assert_eq!(log.erase(Erase::Conversation(&run.conversation)).await.unwrap(), 1);
    let page = log.read(&run, UpdatePosition::START, 10).await.unwrap();
    assert_eq!(page.state, RunState::Unknown);
    assert_eq!(names(&mut raw(&address()).await, &prefix).await, [""; 0]);
}
