//! Tests of opening a store: by several processes at once, with existing tables, with missing
//! rights, and in separate schemas.

use std::{
    env,
    process::{Command, Stdio},
};

use crate::common::{
    append, key, open, options, ordinary_user, quoted, raw, schema, server, texts, write,
};
use tower_chat_core::{
    ConversationKey,
    store::{Directory, HistoryStore, Maintenance, Revision},
};
use tower_chat_postgres::{OpenError, PostgresStore};

const ADDRESS: &str = "TOWER_CHAT_POSTGRES_ADDRESS";
const NAME: &str = "TOWER_CHAT_POSTGRES_NAME";
const PROCESSES: usize = 8;
const SHARED: &str = "shared by processes";

#[tokio::test]
async fn many_processes_can_open_a_new_schema_at_the_same_time() {
    let address = server().address("postgres");
    let children: Vec<_> = (0..PROCESSES)
        .map(|number| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", "opening::child_opens_and_writes", "--ignored", "--nocapture"])
                .env(ADDRESS, &address)
                .env(NAME, number.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = open(PostgresStore::options().with_schema(SHARED)).await;
    for number in 0..PROCESSES {
        assert_eq!(texts(&store, &key(&number.to_string())).await, ["hi"]);
    }
}

#[tokio::test]
#[ignore = "the child of another test"]
async fn child_opens_and_writes() {
    let (Ok(address), Ok(name)) = (env::var(ADDRESS), env::var(NAME)) else { return };
    let store = PostgresStore::options().with_schema(SHARED).connect(&address).await.unwrap();
    append(&store, write(&key(&name), Revision::ABSENT, &["hi"])).await.unwrap();
}

#[tokio::test]
async fn a_store_loads_the_messages_that_an_earlier_store_has_written() {
    let options = options();
    let store = open(options.clone()).await;
    append(&store, write(&key("kept"), Revision::ABSENT, &["a"])).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(texts(&open(options).await, &key("kept")).await, ["a"]);
}

#[tokio::test]
async fn a_user_without_the_right_to_create_schemas_can_use_an_existing_schema() {
    let schema = schema();
    let client = raw(&server().address("postgres")).await;
    let made =
        format!("CREATE ROLE guest LOGIN; CREATE SCHEMA {} AUTHORIZATION guest", quoted(&schema));
    client.batch_execute(&made).await.unwrap();
    let options = PostgresStore::options().with_schema(&schema);
    let store = options.connect(&server().address_for("guest", "postgres")).await.unwrap();
    append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
}

#[tokio::test]
async fn tables_of_a_newer_release_are_refused() {
    let schema = schema();
    let options = PostgresStore::options().with_schema(&schema);
    open(options.clone()).await;
    let client = raw(&server().address("postgres")).await;
    let table = format!("{}.schema_version", quoted(&schema));
    client.execute(&format!("UPDATE {table} SET version = 99"), &[]).await.unwrap();
    let error = options.connect(&server().address("postgres")).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer { version: 99, .. }), "{error:?}");
}

#[tokio::test]
async fn a_failed_connection_reports_its_cause() {
    let error = PostgresStore::connect("postgres://host:port/").await.unwrap_err();
    assert!(matches!(error, OpenError::Address { .. }), "{error:?}");
    let error = options().with_max_connections(0).connect("host=localhost").await.unwrap_err();
    assert!(matches!(error, OpenError::InvalidOption { option: "max_connections", value: 0, .. }));
    let error =
        options().with_root_certificates("none").connect("host=localhost").await.unwrap_err();
    assert!(matches!(error, OpenError::Certificates { .. }), "{error:?}");
    let error = options().connect(&server().address("no such database")).await.unwrap_err();
    assert!(matches!(error, OpenError::Address { .. } | OpenError::Connect { .. }), "{error:?}");
    let error = options().connect(&server().address("no_such_database")).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("does not have the database in the address"), "{error}");
    let guest = server().address_for("no_such_user", "postgres");
    let error = options().connect(&guest).await.unwrap_err();
    assert!(error.to_string().contains("refused the user"), "{error}");

    let client = raw(&server().address("postgres")).await;
    let sql = "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0";
    client.batch_execute(sql).await.unwrap();
    let error = options().connect(&server().address("ascii")).await.unwrap_err();
    assert!(matches!(error, OpenError::Encoding { .. }), "{error:?}");
}

#[tokio::test]
async fn with_row_level_security_a_transaction_sees_only_the_scope_in_its_setting() {
    let schema = schema();
    let address = ordinary_user().await;
    let options = PostgresStore::options().with_schema(&schema).with_row_level_security(true);
    let store = options.connect(&address).await.unwrap();
    for scope in ["alice", "bob"] {
        let key = ConversationKey::new(scope, "mine");
        append(&store, write(&key, Revision::ABSENT, &[scope])).await.unwrap();
    }
    // A store must detect the policies of existing tables without the option for row-level
    // security.
    let store = PostgresStore::options().with_schema(&schema).connect(&address).await.unwrap();
    let fork = ConversationKey::new("bob", "fork");
    store.fork_at(&ConversationKey::new("alice", "mine"), None, &fork).await.unwrap();
    assert_eq!(texts(&store, &fork).await, ["alice"]);

    let schema = quoted(&schema);
    let messages = format!("SELECT convert_from(scope, 'UTF8') FROM {schema}.messages");
    let seen = async |client: &tokio_postgres::Client| {
        let rows = client.query(&messages, &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
    };
    // The policies also apply to this connection, although its user owns the tables.
    let client = raw(&address).await;
    assert_eq!(seen(&client).await, Vec::<String>::new());
    let name = "SELECT set_config('tower_chat.scope', '\\x616c696365', false)";
    client.batch_execute(name).await.unwrap();
    assert_eq!(seen(&client).await, ["alice"]);
    let intruding =
        format!("INSERT INTO {schema}.messages VALUES ('bob', 'mine', 2, '\\x00', 0, 'forged')");
    let refused = client.batch_execute(&intruding).await.unwrap_err();
    assert_eq!(refused.code(), Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE));
    let superuser = raw(&server().address("postgres")).await;
    assert_eq!(seen(&superuser).await.len(), 3);
}

#[tokio::test]
async fn with_row_level_security_a_partition_shows_only_the_scope_in_the_setting() {
    let schema = schema();
    let address = ordinary_user().await;
    let options = PostgresStore::options()
        .with_schema(&schema)
        .with_partitions(2)
        .with_row_level_security(true);
    let store = options.connect(&address).await.unwrap();
    for scope in ["alice", "bob"] {
        for id in ["1", "2", "3", "4", "5", "6", "7", "8"] {
            let key = ConversationKey::new(scope, id);
            append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
        }
    }
    let client = raw(&address).await;
    let schema = quoted(&schema);
    let seen = async || {
        let mut seen = 0;
        for part in 0..2 {
            let sql = format!("SELECT count(*) FROM {schema}.messages_{part}");
            seen += client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0);
        }
        seen
    };
    assert_eq!(seen().await, 0);
    client.batch_execute("SET tower_chat.scope = '\\x616c696365'").await.unwrap();
    assert_eq!(seen().await, 8);
}

#[tokio::test]
async fn the_rows_of_a_table_are_divided_into_partitions_by_conversation() {
    let schema = schema();
    let store = open(PostgresStore::options().with_schema(&schema).with_partitions(4)).await;
    for number in 0..40 {
        append(&store, write(&key(&number.to_string()), Revision::ABSENT, &["a"])).await.unwrap();
    }
    let client = raw(&server().address("postgres")).await;
    let schema = quoted(&schema);
    let mut counts = Vec::new();
    for part in 0..4 {
        let sql = format!("SELECT count(*) FROM {schema}.messages_{part}");
        counts.push(client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0));
    }
    assert_eq!(counts.iter().sum::<i64>(), 40);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[tokio::test]
async fn long_ids_that_begin_alike_are_listed_in_order() {
    let store = open(options()).await;
    let beginning = "x".repeat(5_000);
    let mut ids: Vec<String> = (0..20).map(|number| format!("{beginning}{number}")).collect();
    ids.extend([beginning[..512].to_owned(), "w".to_owned(), "y".to_owned()]);
    ids.sort();
    for id in &ids {
        append(&store, write(&key(id), Revision::ABSENT, &["a"])).await.unwrap();
    }
    let mut paged: Vec<String> = Vec::new();
    loop {
        let page = store.list("scope", paged.last().map(String::as_str), 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        paged.extend(page.iter().map(|key| key.id().to_owned()));
    }
    assert_eq!(paged, ids);
}
