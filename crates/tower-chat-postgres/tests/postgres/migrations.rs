//! Tests that the tables of an older release are migrated, with all of their content.

use std::time::{Duration, SystemTime};

use crate::common::{append, key, ordinary_user, quoted, raw, schema, texts, write};
use tokio_postgres::Client;
use tower_chat_core::{
    Message, RunId, format,
    store::{ConversationQuery, ConversationState, Directory, HistoryStore, Revision},
};
use tower_chat_postgres::PostgresStore;

/// The statements with which version 1 created its tables. The divided tables have two partitions
/// and row-level security.
const TABLES: &str = include_str!("../fixtures/version_1/tables.sql");
const DIVIDED_TABLES: &str = include_str!("../fixtures/version_1/divided_tables.sql");
const FUNCTIONS: &str = include_str!("../fixtures/version_1/functions.sql");
const NAME_SCOPE: &str =
    "PERFORM set_config('tower_chat.scope', '\\x' || encode(p_scope, 'hex'), true);";

/// Removes the objects that later versions have added.
const WITHOUT_DIRECTORY: &str = "
    DROP TABLE {schema}.store_marks;
    DROP TABLE {schema}.run_usage;
    DROP TABLE {schema}.history_summaries;
    DROP FUNCTION {schema}.add_summary;
    DROP FUNCTION {schema}.remove_summary;
    DROP FUNCTION {schema}.describe;
    DROP POLICY IF EXISTS all_scopes ON {schema}.conversations;
    DROP POLICY IF EXISTS all_scopes ON {schema}.tool_invocations;
    DROP POLICY IF EXISTS all_scopes ON {schema}.open_runs;
    ALTER TABLE {schema}.conversations DROP COLUMN active_hour, DROP COLUMN last_active,
        DROP COLUMN created, DROP COLUMN runs, DROP COLUMN last_run,
        DROP COLUMN runs_without_open, DROP COLUMN last_run_without_open, DROP COLUMN mode,
        DROP COLUMN title, DROP COLUMN metadata, DROP COLUMN description_version,
        DROP COLUMN parent_scope, DROP COLUMN parent_conversation, DROP COLUMN parent_position,
        DROP COLUMN parent_key, DROP COLUMN rewrites, DROP COLUMN load_from;";

const REVISION: Revision = Revision { incarnation: 7, sequence: 1 };

/// Creates a schema of version 1 that belongs to the ordinary user, and a conversation with one
/// message in it.
async fn version_1(tables: &str, name_scope: &str) -> String {
    let schema = schema();
    let client = raw(&ordinary_user().await).await;
    let functions = FUNCTIONS.replace("{name_scope}", name_scope);
    let sql = format!("{tables}{functions}").replace("{schema}", &quoted(&schema));
    client.batch_execute(&sql).await.unwrap();

    client.batch_execute("SET tower_chat.scope = '\\x73636f7065'").await.unwrap();
    let table = quoted(&schema);
    let sql = format!("INSERT INTO {table}.conversations VALUES ($1, $2, NULL, NULL, 7, 1)");
    let (scope, conversation) = (&b"scope"[..], &b"old"[..]);
    client.execute(&sql, &[&scope, &conversation]).await.unwrap();
    let sql = format!("INSERT INTO {table}.messages VALUES ($1, $2, 1, $3, 0, $4)");
    let (run, body) = (RunId::new().to_bytes(), format::encode(&Message::user("a")));
    client.execute(&sql, &[&scope, &conversation, &run.as_slice(), &body]).await.unwrap();
    schema
}

/// Opens a store as the ordinary user, without options for partitions or row-level security.
async fn open(schema: &str) -> PostgresStore {
    PostgresStore::options().with_schema(schema).connect(&ordinary_user().await).await.unwrap()
}

/// Checks that the store can write to the old conversation, which has the revision `revision`, and
/// to a new conversation.
async fn assert_is_usable(store: &PostgresStore, revision: Revision) {
    assert_eq!(texts(store, &key("old")).await, ["a"]);
    let revision = append(store, write(&key("old"), revision, &["b"])).await.unwrap();
    append(store, write(&key("old"), revision, &["c"])).await.unwrap();
    assert_eq!(texts(store, &key("old")).await, ["a", "b", "c"]);
    append(store, write(&key("new"), Revision::ABSENT, &["a"])).await.unwrap();
    assert!(store.delete(&key("new")).await.unwrap());
}

/// Returns the number of rows that the owner of a table sees without setting a scope.
async fn seen(client: &Client, schema: &str, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {}.{table}", quoted(schema));
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn tables_of_version_1_are_migrated() {
    let schema = version_1(TABLES, "").await;
    // The option for row-level security must have no effect on existing tables.
    let options = PostgresStore::options().with_schema(&schema).with_row_level_security(true);
    assert_is_usable(&options.connect(&ordinary_user().await).await.unwrap(), REVISION).await;
    let client = raw(&ordinary_user().await).await;
    assert_eq!(seen(&client, &schema, "messages").await, 3);
}

#[tokio::test]
async fn tables_of_version_1_with_row_level_security_are_migrated_without_the_option() {
    let schema = version_1(DIVIDED_TABLES, NAME_SCOPE).await;
    assert_is_usable(&open(&schema).await, REVISION).await;
    let client = raw(&ordinary_user().await).await;
    for table in ["messages", "messages_0", "messages_1"] {
        assert_eq!(seen(&client, &schema, table).await, 0, "{table}");
    }
}

fn made_at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second)
}

fn run_made_at(second: u64) -> RunId {
    let mut bytes = RunId::new().to_bytes();
    let milliseconds = (1_700_000_000 + second) * 1000;
    bytes[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
    RunId::from_bytes(bytes)
}

/// The migration derives the times of each conversation from the ids of its runs, which contain the
/// time of their creation.
#[tokio::test]
async fn the_directory_of_an_older_version_has_the_times_of_its_runs() {
    for (tables, name_scope) in [(TABLES, ""), (DIVIDED_TABLES, NAME_SCOPE)] {
        let before = SystemTime::now() - Duration::from_secs(5);
        let schema = version_1(tables, name_scope).await;
        let client = raw(&ordinary_user().await).await;
        client.batch_execute("SET tower_chat.scope = '\\x73636f7065'").await.unwrap();
        let table = quoted(&schema);
        let runs: Vec<RunId> = (1..=3).map(run_made_at).collect();
        let body = format::encode(&Message::user("from long ago"));
        // The first run continues after the second one, and the third run is open.
        for (sequence, run) in (1_i64..).zip([0, 0, 1, 0, 2, 2]) {
            let sql =
                format!("INSERT INTO {table}.messages VALUES ('scope', 'long', $1, $2, 0, $3)");
            let run = runs[run].to_bytes();
            client.execute(&sql, &[&sequence, &run.as_slice(), &body]).await.unwrap();
        }
        let opened = runs[2].to_bytes();
        let sql = format!(
            "INSERT INTO {table}.open_runs
             VALUES ('scope', 'long', NULL, $1, 1, 1, 0, 0, NULL, 4, false, NULL, NULL)"
        );
        client.execute(&sql, &[&opened.as_slice()]).await.unwrap();
        let sql = format!(
            "INSERT INTO {table}.conversations
             VALUES ('scope', 'long', NULL, NULL, 7, 6, 4), ('scope', 'empty', NULL, NULL, 7, 0, NULL);
             INSERT INTO {table}.tool_invocations
             SELECT 'scope', 'long', 3, n, 0, '', 'tool', 'ok' FROM generate_series(1, 5) AS n"
        );
        client.batch_execute(&sql).await.unwrap();

        let store = open(&schema).await;
        let summary = store.summary(&key("long")).await.unwrap().unwrap();
        assert_eq!((summary.messages, summary.runs, summary.usage.tool_calls), (4, 4, 5));
        assert_eq!([summary.created_at, summary.last_active_at], [1, 3].map(made_at));
        assert_eq!((summary.last_mode, summary.state), (None, ConversationState::RunOpen));
        let listed = store.runs(&key("long"), None, 10).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|it| (it.run, it.began_at, it.is_open)).collect();
        assert_eq!(
            listed,
            [3, 2, 1].map(|second| (runs[second as usize - 1], made_at(second), second == 3))
        );
        for id in ["empty", "old"] {
            let summary = store.summary(&key(id)).await.unwrap().unwrap();
            assert!(summary.created_at >= before, "{id}: {summary:?}");
        }
        let page = store.conversations(&ConversationQuery::in_all_scopes()).await.unwrap();
        assert_eq!(page.conversations.len(), 3);
        assert_eq!(page.conversations[2].key, key("long"));
        assert!(store.delete(&key("long")).await.unwrap());
        assert_eq!(store.runs(&key("long"), None, 10).await.unwrap(), []);
        assert_is_usable(&store, REVISION).await;
        assert_eq!(store.summary(&key("old")).await.unwrap().unwrap().runs, 3);
    }
}

/// In version 2, the function `append` could lack the statement that sets the scope, and partitions
/// had no policies.
#[tokio::test]
async fn the_migration_of_version_2_adds_the_scope_setting_and_policies_of_partitions() {
    let schema = schema();
    let options = PostgresStore::options()
        .with_schema(&schema)
        .with_partitions(2)
        .with_row_level_security(true);
    let store = options.connect(&ordinary_user().await).await.unwrap();
    let revision = append(&store, write(&key("old"), Revision::ABSENT, &["a"])).await.unwrap();

    let client = raw(&ordinary_user().await).await;
    let append = "SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p
        JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = $1 AND p.proname = 'append'";
    let append: String = client.query_one(append, &[&schema]).await.unwrap().get(0);
    assert!(append.contains(NAME_SCOPE), "{append}");
    let quoted = quoted(&schema);
    let mut sql = format!(
        "{}; UPDATE {quoted}.schema_version SET version = 2;",
        append.replace(NAME_SCOPE, "")
    );
    for table in ["conversations", "messages", "tool_invocations", "open_runs"] {
        for part in 0..2 {
            sql.push_str(&format!(
                "ALTER TABLE {quoted}.{table}_{part} DISABLE ROW LEVEL SECURITY;
                 ALTER TABLE {quoted}.{table}_{part} NO FORCE ROW LEVEL SECURITY;
                 DROP POLICY IF EXISTS one_scope ON {quoted}.{table}_{part};"
            ));
        }
    }
    sql.push_str(&WITHOUT_DIRECTORY.replace("{schema}", &quoted));
    client.batch_execute(&sql).await.unwrap();
    let all = async || {
        seen(&client, &schema, "messages_0").await + seen(&client, &schema, "messages_1").await
    };
    assert_eq!(all().await, 1);

    assert_is_usable(&open(&schema).await, revision).await;
    assert_eq!(all().await, 0);
}
