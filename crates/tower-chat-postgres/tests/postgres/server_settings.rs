//! Tests of reading the settings of a server, and of opening a store without a migration.

use std::time::Duration;

use crate::common::{
    append, key, options, ordinary_user, quoted, raw, schema, server, texts, write,
};
use tower_chat_core::store::Revision;
use tower_chat_postgres::{OpenError, PostgresStore};

#[tokio::test]
async fn the_settings_of_a_server_are_reported_with_and_without_tables() {
    let options = options().with_statement_timeout(Duration::from_millis(4321));
    let address = server().address("postgres");
    let before = options.clone().server_settings(&address).await.unwrap();
    assert_eq!((before.tables_version, before.row_level_security), (None, None));
    assert_eq!((before.encoding.as_str(), before.max_connections_of_store), ("UTF8", 4));
    assert_eq!(before.statement_timeout, Some(Duration::from_millis(4321)));
    assert!(before.has_statement_timeout_of_options && before.can_write);
    assert!(before.role_bypasses_policies && !before.is_read_only);
    assert!(before.version_number >= 130_000, "{before:?}");
    assert!(before.version.starts_with(&(before.version_number / 10_000).to_string()));
    assert!(before.connections >= 1 && before.max_connections > 1, "{before:?}");
    assert!(before.freeze_age >= 0 && before.freeze_age < before.freeze_max_age);

    options.clone().with_row_level_security(true).connect(&address).await.unwrap();
    let after = options.server_settings(&address).await.unwrap();
    assert_eq!(after.tables_version, Some(after.supported_version));
    assert_eq!(after.row_level_security, Some(true));
}

#[tokio::test]
async fn server_settings_describes_the_rights_and_settings_of_the_connected_role() {
    let schema = schema();
    let options = PostgresStore::options().with_schema(&schema);
    options.clone().connect(&ordinary_user().await).await.unwrap();
    let client = raw(&server().address("postgres")).await;
    let sql = format!(
        "CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA {0} TO looker;
         GRANT SELECT ON ALL TABLES IN SCHEMA {0} TO looker;
         ALTER ROLE looker SET synchronous_commit = off;
         ALTER ROLE looker SET idle_in_transaction_session_timeout = '7s'",
        quoted(&schema)
    );
    client.batch_execute(&sql).await.unwrap();
    let owner = options.clone().server_settings(&ordinary_user().await).await.unwrap();
    assert_eq!((owner.role.as_str(), owner.can_write), ("ordinary", true));
    assert_eq!(
        (owner.synchronous_commit.as_str(), owner.idle_in_transaction_timeout),
        ("on", None)
    );
    let looker =
        options.server_settings(&server().address_for("looker", "postgres")).await.unwrap();
    assert_eq!((looker.role.as_str(), looker.can_write), ("looker", false));
    assert_eq!(looker.synchronous_commit, "off");
    assert_eq!(looker.idle_in_transaction_timeout, Some(Duration::from_secs(7)));
    assert!(!looker.role_bypasses_policies);
}

#[tokio::test]
async fn without_a_migration_no_schema_is_created_and_older_tables_are_refused() {
    let schema = schema();
    let options = PostgresStore::options().with_schema(&schema);
    let address = server().address("postgres");
    let client = raw(&address).await;
    let schemas = async || {
        let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
        client.query_one(sql, &[&schema]).await.unwrap().get::<_, i64>(0)
    };
    let careful = options.clone().with_migration(false);
    let error = careful.clone().connect(&address).await.unwrap_err();
    assert!(matches!(&error, OpenError::NoTables { schema: found } if *found == schema), "{error}");
    assert_eq!(schemas().await, 0);

    let store = options.connect(&address).await.unwrap();
    append(&store, write(&key("a"), Revision::ABSENT, &["there"])).await.unwrap();
    let reader = careful.clone().connect(&address).await.unwrap();
    assert_eq!(texts(&reader, &key("a")).await, ["there"]);

    let sql = format!("UPDATE {}.schema_version SET version = 3", quoted(&schema));
    client.batch_execute(&sql).await.unwrap();
    let error = careful.connect(&address).await.unwrap_err();
    assert!(!error.is_retryable());
    let OpenError::Older { version, supported, .. } = error else { panic!("{error}") };
    assert_eq!((version, supported), (3, 7));
}
