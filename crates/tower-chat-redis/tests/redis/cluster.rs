//! Tests the store against the store contract, in a cluster of three servers, and tests of failures
//! in a cluster.

use std::{
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use crate::common::{address, append, ask, key, options, raw, write};
use tower_chat_core::store::{Directory, HistoryStore, Revision};
use tower_chat_delivery::UpdateLogOptions;
use tower_chat_redis::{OpenError, RedisOptions, RedisStore, RedisUpdateLog, WriteConcern};
use tower_chat_testkit::server::{RedisCluster, required, writes_through_outages};

static CLUSTER: LazyLock<RedisCluster> =
    LazyLock::new(|| required(RedisCluster::start(3), "the Redis store in a cluster"));

fn addresses() -> Vec<String> {
    CLUSTER.addresses()
}

async fn open(options: RedisOptions) -> RedisStore {
    // This server reports the other servers of the cluster.
    options.connect_cluster(&[&addresses()[0]]).await.unwrap()
}

mod contract {
    use super::open;
    use crate::common::options;

    tower_chat_testkit::store_contract!(open(options()).await);
}

mod update_log {
    use super::open;
    use crate::common::options;
    use tower_chat_redis::RedisUpdateLog;

    tower_chat_delivery::update_log_contract!(log_options => {
        RedisUpdateLog::from_store(&open(options()).await, log_options)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_log_wakes_readers_at_another_server_of_the_cluster() {
    let options = options();
    let logs = async |first: &str| {
        let store = options.clone().connect_cluster(&[first]).await.unwrap();
        RedisUpdateLog::from_store(&store, UpdateLogOptions::default())
    };
    let (writer, reader) = (logs(&addresses()[0]).await, logs(&addresses()[1]).await);
    crate::update_log::check_that_a_log_wakes_readers(&writer, &reader).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_are_distributed_over_all_servers_of_the_cluster() {
    let prefix = crate::common::prefix();
    let store = open(options().with_prefix(&prefix)).await;
    for number in 0..60 {
        append(&store, write(&key(&number.to_string()), Revision::ABSENT, &["a"])).await.unwrap();
    }
    assert_eq!(store.list("scope", None, 100).await.unwrap().len(), 60);
    let mut heads = 0;
    for address in addresses() {
        let mut connection = raw(&address).await;
        let names: Vec<String> =
            ask(&mut connection, &["KEYS", &format!("{prefix}:*:head")]).await.unwrap();
        assert!(!names.is_empty());
        heads += names.len();
    }
    assert_eq!(heads, 60);
    for number in 0..60 {
        assert!(store.delete(&key(&number.to_string())).await.unwrap());
    }
    for address in addresses() {
        let mut connection = raw(&address).await;
        assert_eq!(crate::common::names(&mut connection, &prefix).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn options_that_a_cluster_does_not_support_are_refused() {
    let error = options().connect(&addresses()[0]).await.unwrap_err();
    assert!(matches!(error, OpenError::Cluster), "{error:?}");
    let waiting = options().with_write_concern(WriteConcern::Replicas(1));
    let error = waiting.connect_cluster(&[&addresses()[0]]).await.unwrap_err();
    assert!(matches!(error, OpenError::DurabilityInCluster), "{error:?}");
    let alone = address();
    let error = options().connect_cluster(&[&alone]).await.unwrap_err();
    assert!(!format!("{error}").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_cluster_servers_during_writes_lose_and_duplicate_no_write() {
    let cluster = required(RedisCluster::start(3), "the Redis store in a cluster");
    let addresses = cluster.addresses();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    let options = options().with_retry_timeout(Duration::from_secs(300));
    let store = options.connect_cluster(&addresses).await.unwrap();
    let cluster = Arc::new(Mutex::new(cluster));
    let outages = (0..3).map(|server| {
        let cluster = cluster.clone();
        move || {
            let mut cluster = cluster.lock().unwrap();
            cluster.servers()[server].crash();
            cluster.servers()[server].start_again();
        }
    });
    writes_through_outages(store, outages).await;
}
