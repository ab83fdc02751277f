//! The server of a test binary, and helpers for its data.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

pub mod proxy;

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicU32, Ordering},
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        HistoryStore, Revision,
        author::{AppendError, Write},
    },
};
use tower_chat_postgres::{PostgresOptions, PostgresStore};
use tower_chat_testkit::server::{PostgresServer, required};

static SERVER: LazyLock<PostgresServer> = LazyLock::new(start);

/// Starts a server for one test.
pub fn start() -> PostgresServer {
    required(PostgresServer::start(), "the PostgreSQL store")
}

/// Returns the server that all tests of this program share. The first call starts it.
pub fn server() -> &'static PostgresServer {
    &SERVER
}

/// Returns a new schema name.
pub fn schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test \"'{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Quotes the name of a schema for a statement.
pub fn quoted(schema: &str) -> String {
    format!("\"{}\"", schema.replace('"', "\"\""))
}

/// Returns options for a store in a new schema, with few connections.
pub fn options() -> PostgresOptions {
    PostgresStore::options().with_schema(schema()).with_max_connections(4)
}

pub async fn open(options: PostgresOptions) -> PostgresStore {
    options.connect(&server().address("postgres")).await.unwrap()
}

/// Returns the address of the server for a user who is not a superuser and may create schemas.
pub async fn ordinary_user() -> String {
    static MADE: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let make = async {
        let client = raw(&server().address("postgres")).await;
        let sql = "CREATE ROLE ordinary LOGIN; GRANT CREATE ON DATABASE postgres TO ordinary";
        client.batch_execute(sql).await.unwrap();
    };
    MADE.get_or_init(|| make).await;
    server().address_for("ordinary", "postgres")
}

/// Opens a connection that bypasses the store.
pub async fn raw(address: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(address, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(async move {
        drop(connection.await);
    });
    client
}

/// Returns every row of every table of a schema, as text.
pub async fn rows(schema: String) -> Vec<u8> {
    let client = raw(&server().address("postgres")).await;
    let schema = quoted(&schema);
    let mut all = Vec::new();
    let tables = [
        "conversations",
        "messages",
        "tool_invocations",
        "open_runs",
        "run_usage",
        "history_summaries",
    ];
    for table in tables {
        let sql = format!("SELECT it::text FROM {schema}.{table} AS it");
        for row in client.query(&sql, &[]).await.unwrap() {
            all.extend(row.get::<_, String>(0).into_bytes());
        }
    }
    all
}

pub fn key(id: &str) -> ConversationKey {
    ConversationKey::new("scope", id)
}

/// Returns a write of a new run, which contains a user message for each text.
pub fn write(key: &ConversationKey, expected: Revision, texts: &[&str]) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, texts.iter().map(|text| Arc::new(Message::user(*text))))
}

pub async fn append(store: &PostgresStore, write: Write) -> Result<Revision, AppendError> {
    let slot = store.reserve().await.unwrap();
    store.append(slot, vec![write]).await
}

pub async fn texts(store: &PostgresStore, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.unwrap();
    history.messages.iter().map(|message| message.text()).collect()
}
