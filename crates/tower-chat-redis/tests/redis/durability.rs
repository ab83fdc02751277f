//! Tests of the durability of acknowledged writes, and of servers whose settings do not permit the
//! required durability.

use std::time::Duration;

use crate::common::{
    append, ask, key, names, options, prefix, proxy::Proxy, raw, start, texts, write,
};
use redis::aio::MultiplexedConnection;
use tower_chat_core::{
    MessageId,
    store::{
        Directory, HistoryStore, Keep, Lease, LeaseEnd, Maintenance, Revision, StoreError,
        author::{Close, Staged, Ticket, Write},
    },
};
use tower_chat_redis::{OpenError, RedisStore, WriteConcern};
use tower_chat_testkit::server::RedisServer;

fn replica_of(server: &RedisServer) -> RedisServer {
    start(&["--replicaof", &format!("127.0.0.1 {}", server.port())])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_in_the_memory_of_a_replica_when_it_is_acknowledged() {
    let server = start(&[]);
    let replica = replica_of(&server);
    let prefix = prefix();
    let options =
        RedisStore::options().with_prefix(&prefix).with_write_concern(WriteConcern::Replicas(1));
    let patient = options.clone().with_retry_timeout(Duration::from_secs(120));
    let store = patient.connect(&server.address(0)).await.unwrap();
    let key = key("copied");
    let mut at = Revision::ABSENT;
    let messages = format!("{prefix}:{{scope/copied}}:messages");
    let mut connection = raw(&replica.address(0)).await;
    for number in 1..=20 {
        at = append(&store, write(&key, at, &["a"])).await.unwrap();
        let length: u64 = ask(&mut connection, &["HLEN", &messages]).await.unwrap();
        assert_eq!(length, number);
    }

    // The suspended replica does not confirm the write, which is stored without the required
    // durability.
    signal(&replica, "-STOP");
    let hasty =
        options.with_retry_timeout(Duration::ZERO).with_response_timeout(Duration::from_secs(2));
    let last = write(&key, at, &["last"]);
    // The repeated write must fail too, although it uses another connection and is already stored.
    for _ in 0..2 {
        let hasty = hasty.clone().connect(&server.address(0)).await.unwrap();
        let error = append(&hasty, last.clone()).await.unwrap_err().source;
        let is_retryable = error.is_retryable();
        assert!(matches!(error, StoreError::Backend { .. }) && is_retryable, "{error:?}");
        assert_eq!(hasty.head(&key).await.unwrap().revision, last.result());
    }
    // A refused write does not wait for a confirmation by the replica.
    let hasty = hasty.connect(&server.address(0)).await.unwrap();
    let error = append(&hasty, write(&key, at, &["another"])).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    signal(&replica, "-CONT");
    append(&store, last).await.unwrap();
    let length: u64 = ask(&mut connection, &["HLEN", &messages]).await.unwrap();
    assert_eq!(length, 21);
}

fn signal(server: &RedisServer, signal: &str) {
    let pid = std::fs::read_to_string(server.folder().join("pid")).unwrap();
    let sent = std::process::Command::new("kill").args([signal, pid.trim()]).status();
    assert!(sent.unwrap().success());
}

/// Starts a server with a suspended replica, and opens a store whose writes wait for this replica.
/// The store has one connection for these writes, and one for other requests. Creates a
/// conversation with one message for each id.
async fn waiting_for_a_replica<const COUNT: usize>(
    ids: [&str; COUNT],
) -> (RedisServer, RedisServer, Proxy, RedisStore, [Revision; COUNT]) {
    let server = start(&[]);
    let replica = replica_of(&server);
    let (proxy, address) = Proxy::start(&server.address(0)).await;
    let options = options().with_max_connections(1).with_write_concern(WriteConcern::Replicas(1));
    let options =
        options.with_response_timeout(Duration::from_secs(120)).with_retry_timeout(Duration::ZERO);
    let store = options.connect(&address).await.unwrap();
    let mut at = [Revision::ABSENT; COUNT];
    for (id, at) in ids.iter().zip(&mut at) {
        *at = append(&store, write(&key(id), *at, &["a"])).await.unwrap();
    }
    signal(&replica, "-STOP");
    (server, replica, proxy, store, at)
}

/// Submits a write, and returns when the server has received it.
async fn begin(server: &RedisServer, store: &RedisStore, write: Write) -> Ticket {
    let mut connection = raw(&server.address(0)).await;
    let writes = async |connection: &mut MultiplexedConnection| {
        let calls: String = ask(connection, &["INFO", "commandstats"]).await.unwrap();
        calls.lines().find(|line| line.starts_with("cmdstat_hset:")).unwrap().to_owned()
    };
    let before = writes(&mut connection).await;
    let slot = store.reserve().await.unwrap();
    let ticket = store.append(slot, vec![write]);
    while writes(&mut connection).await == before {}
    ticket
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_do_not_wait_behind_a_write_that_waits_for_a_replica() {
    let (server, replica, _proxy, store, [at, _]) = waiting_for_a_replica(["a", "b"]).await;
    let mut waiting = begin(&server, &store, write(&key("a"), at, &["b"])).await;
    let other = key("b");
    tokio::select! {
        biased;
        outcome = &mut waiting => panic!("no replica has confirmed the write: {outcome:?}"),
        texts = texts(&store, &other) => assert_eq!(texts, ["a"]),
    }
    signal(&replica, "-CONT");
    waiting.await.unwrap();
}

/// On one thread, all submitted writes have been sent when a later request is answered.
#[tokio::test]
async fn writes_submitted_while_a_write_waits_for_a_replica_share_one_wait() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (server, replica, proxy, store, at) = waiting_for_a_replica(ids).await;
    let (before, begun) = (proxy.asked(), std::time::Instant::now());
    let mut writes = ids.iter().zip(at).map(|(id, at)| write(&key(id), at, &["b"]));
    let mut tickets = vec![begin(&server, &store, writes.next().unwrap()).await];
    for write in writes {
        let slot = store.reserve().await.unwrap();
        tickets.push(store.append(slot, vec![write]));
    }
    ask::<()>(&mut raw(&server.address(0)).await, &["PING"]).await.unwrap();
    signal(&replica, "-CONT");
    for ticket in tickets {
        ticket.await.unwrap();
    }
    // The first write waits for the replica, and then all other writes wait together. Once a
    // second, the store also reads the mark that records whether it contains sealed data.
    let checks = proxy.asked() - before - (ids.len() + 2);
    assert!(checks <= usize::try_from(begun.elapsed().as_secs()).unwrap(), "{checks} checks");
    for id in ids {
        assert_eq!(texts(&store, &key(id)).await, ["a", "b"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_a_replica_can_read_and_refuses_writes() {
    let server = start(&[]);
    let replica = replica_of(&server);
    let options = options()
        .with_write_concern(WriteConcern::Replicas(1))
        .with_retry_timeout(Duration::from_secs(120));
    let store = options.clone().connect(&server.address(0)).await.unwrap();
    let at = append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
    let reading = options.connect(&replica.address(0)).await.unwrap();
    assert_eq!(texts(&reading, &key("a")).await, ["a"]);
    assert_eq!(reading.list("scope", None, 10).await.unwrap(), [key("a")]);
    for write in [write(&key("a"), at, &["b"]), write(&key("b"), Revision::ABSENT, &["b"])] {
        let error = append(&reading, write).await.unwrap_err().source;
        assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_a_replica_has_refused_is_sent_again_on_a_new_connection() {
    let server = start(&[]);
    let replica = replica_of(&server);
    let (proxy, address) = Proxy::start(&replica.address(0)).await;
    let options = options().with_max_connections(1).with_retry_timeout(Duration::from_secs(120));
    let store = options.connect(&address).await.unwrap();
    assert_eq!(texts(&store, &key("a")).await, Vec::<String>::new());
    // From now on, the proxy forwards to the primary, like a host name that refers to the current
    // primary.
    proxy.lead_to(&server.address(0));
    append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
    assert_eq!(texts(&store, &key("a")).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_on_a_server_without_memory_store_nothing_and_succeed_after_it_has_memory() {
    let server = start(&["--maxmemory-policy", "noeviction"]);
    let prefix = prefix();
    let store = options().with_prefix(&prefix).connect(&server.address(0)).await.unwrap();
    let mut connection = raw(&server.address(0)).await;
    let at = append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
    ask::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let (second, new) =
        (write(&key("a"), at, &["b"]), write(&key("new"), Revision::ABSENT, &["x"]));
    for write in [&second, &new] {
        let error = append(&store, write.clone()).await.unwrap_err().source;
        assert!(matches!(error, StoreError::Backend { .. }) && error.is_retryable(), "{error:?}");
    }
    assert_eq!(texts(&store, &key("a")).await, ["a"]);
    assert!(store.list("scope", None, 10).await.unwrap() == [key("a")]);
    ask::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    for write in [second, new] {
        append(&store, write).await.unwrap();
    }
    assert_eq!(texts(&store, &key("a")).await, ["a", "b"]);
    assert_eq!(texts(&store, &key("new")).await, ["x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_prunes_and_discards_succeed_on_a_server_without_memory() {
    let server = start(&["--maxmemory-policy", "noeviction"]);
    let prefix = prefix();
    let options = options().with_prefix(&prefix);
    let store = options.clone().connect(&server.address(0)).await.unwrap();
    let mut connection = raw(&server.address(0)).await;
    append(&store, write(&key("deleted"), Revision::ABSENT, &["a"])).await.unwrap();
    let at = append(&store, write(&key("pruned"), Revision::ABSENT, &["a"])).await.unwrap();
    append(&store, write(&key("pruned"), at, &["b"])).await.unwrap();
    let at = append(&store, write(&key("open"), Revision::ABSENT, &["a"])).await.unwrap();
    let lease = Lease {
        attempt: 1,
        holder: 1,
        renewed_at: std::time::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let staged = Staged { lease, close: None, service_id: None, partial_text: None };
    let opening = write(&key("open"), at, &["staged"]).staged(staged.clone());
    let id = MessageId { run: opening.run(), index: 1 };
    let at = append(&store, opening).await.unwrap();

    // Without this key, the conversation is like one of an older release.
    ask::<()>(&mut connection, &["DEL", &format!("{prefix}:sealed")]).await.unwrap();
    ask::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let store = options.connect(&server.address(0)).await.unwrap();
    assert!(store.delete(&key("deleted")).await.unwrap());
    assert_eq!(store.prune(&key("pruned"), Keep::Messages(1)).await.unwrap().messages, 1);
    assert_eq!(texts(&store, &key("pruned")).await, ["b"]);
    // An open run (one that is not committed) prevents a prune (a deletion of old runs).
    let close = Some(Close::Discard { visible: 1 });
    let end = Write::new(key("open"), id, at, []).staged(Staged { close, ..staged });
    append(&store, end).await.unwrap();
    assert!(store.head(&key("open")).await.unwrap().open_run.is_none());
    assert_eq!(texts(&store, &key("open")).await, ["a"]);
    for id in ["pruned", "open"] {
        assert!(store.delete(&key(id)).await.unwrap());
    }
    // All keys were deleted, including the list of the scope.
    assert_eq!(names(&mut connection, &prefix).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_synced_write_is_stored_after_a_crash_of_the_server() {
    // With this setting, the server replies without waiting for its disk, and syncs once a second.
    let mut server = start(&["--appendfsync", "everysec"]);
    let options = options().with_write_concern(WriteConcern::Synced { replicas: 0 });
    let store = match options.clone().connect(&server.address(0)).await {
        Ok(store) => store,
        Err(OpenError::TooOld { needed: "7.2", .. }) => return,
        Err(error) => panic!("{error:?}"),
    };
    let key = key("synced");
    let mut at = Revision::ABSENT;
    for _ in 0..3 {
        at = append(&store, write(&key, at, &["a"])).await.unwrap();
    }
    server.crash();
    server.start_again();
    assert_eq!(texts(&store, &key).await.len(), 3);
    // The server has no replica that could confirm the write.
    let asked = options
        .with_write_concern(WriteConcern::Synced { replicas: 1 })
        .with_retry_timeout(Duration::ZERO);
    let asked = asked.with_response_timeout(Duration::from_secs(2));
    let store = asked.connect(&server.address(0)).await.unwrap();
    let error = append(&store, write(&key, at, &["b"])).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Backend { .. }) && error.is_retryable(), "{error:?}");
}
