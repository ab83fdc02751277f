//! The server of a test binary, and helpers for its data.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

pub mod proxy;

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, FromRedisValue, aio::MultiplexedConnection, cmd};
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        HistoryStore, Revision,
        author::{AppendError, Write},
    },
};
use tower_chat_redis::{RedisOptions, RedisStore};
use tower_chat_testkit::server::{RedisServer, required};

static SERVER: LazyLock<RedisServer> = LazyLock::new(|| start(&[]));

/// Starts a server for one test.
pub fn start(settings: &[&str]) -> RedisServer {
    required(RedisServer::start_with(settings), "the Redis store")
}

/// Returns the address of the server that all tests of this program share. The first call starts
/// it.
pub fn address() -> String {
    SERVER.address(0)
}

/// Returns a new prefix.
pub fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns options for a store with a new prefix and few connections.
pub fn options() -> RedisOptions {
    RedisStore::options().with_prefix(prefix()).with_max_connections(2)
}

pub async fn open(options: RedisOptions) -> RedisStore {
    options.connect(&address()).await.unwrap()
}

/// Opens a connection to the server without a store. The timeout of the connection is long enough
/// for a busy machine.
pub async fn raw(address: &str) -> MultiplexedConnection {
    const TIMEOUT: Duration = Duration::from_secs(120);
    let client = redis::Client::open(address).unwrap();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Executes a command on a connection.
pub async fn ask<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> redis::RedisResult<T> {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(connection).await
}

/// Returns the names of all keys of a store, except the key that records whether the store contains
/// sealed data.
pub async fn names(connection: &mut MultiplexedConnection, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = ask(connection, &["KEYS", &format!("{prefix}:*")]).await.unwrap();
    names.retain(|name| *name != format!("{prefix}:sealed"));
    names
}

/// Returns the names and contents of all keys of a store.
pub async fn values(prefix: String) -> Vec<u8> {
    let mut connection = raw(&address()).await;
    let mut all = Vec::new();
    for name in names(&mut connection, &prefix).await {
        let kind: String = ask(&mut connection, &["TYPE", &name]).await.unwrap();
        let question = match kind.as_str() {
            "hash" => vec!["HGETALL", &name],
            "zset" => vec!["ZRANGE", &name, "0", "-1"],
            "string" => vec!["GET", &name],
            other => panic!("a key of type {other}"),
        };
        let content: redis::Value = ask(&mut connection, &question).await.unwrap();
        all.extend(name.into_bytes());
        add_bytes(&content, &mut all);
    }
    all
}

fn add_bytes(value: &redis::Value, all: &mut Vec<u8>) {
    match value {
        redis::Value::BulkString(bytes) => all.extend(bytes),
        redis::Value::Array(values) => values.iter().for_each(|value| add_bytes(value, all)),
        redis::Value::Map(pairs) => pairs.iter().for_each(|(key, value)| {
            add_bytes(key, all);
            add_bytes(value, all);
        }),
        other => panic!("an answer of another kind: {other:?}"),
    }
}

pub fn key(id: &str) -> ConversationKey {
    ConversationKey::new("scope", id)
}

/// Returns a write of a new run, which contains a user message for each text.
pub fn write(key: &ConversationKey, expected: Revision, texts: &[&str]) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, texts.iter().map(|text| Arc::new(Message::user(*text))))
}

pub async fn append(store: &RedisStore, write: Write) -> Result<Revision, AppendError> {
    let slot = store.reserve().await.unwrap();
    store.append(slot, vec![write]).await
}

pub async fn texts(store: &RedisStore, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.unwrap();
    history.messages.iter().map(|message| message.text()).collect()
}
