//! Tests with a PgBouncer that shares connections between transactions. Each transaction may use a
//! connection on which the store has prepared no statement.

use std::sync::LazyLock;

use crate::common::{append, key, options, server, texts, write};
use tower_chat_core::store::{Revision, StoreError};
use tower_chat_postgres::PostgresOptions;
use tower_chat_testkit::server::{PgBouncer, PoolMode, required};

/// The number of connections of the pooler to the server, which is smaller than the number of
/// connections of a store.
const POOL_SIZE: usize = 2;

static POOLER: LazyLock<PgBouncer> = LazyLock::new(|| {
    let pooler = PgBouncer::start(server(), PoolMode::Transaction, POOL_SIZE);
    required(pooler, "the PostgreSQL store behind PgBouncer")
});

fn pooled() -> PostgresOptions {
    options().with_prepared_statements(false)
}

mod contract {
    use tower_chat_postgres::PostgresStore;

    use super::{POOLER, pooled};
    use crate::common::{rows, schema};

    tower_chat_testkit::store_contract!(
            let schema = schema();
            {
                let options = pooled().with_schema(&*schema);
                options.connect(&POOLER.address("postgres")).await.unwrap()
            };
            residual_data: {
                let schema = schema.clone();
                move |_: &PostgresStore| rows(schema.clone())
            };
            one_runtime: "the tests with plain tables cover it";
            heavy: "the tests with plain tables cover it"
    );
}

/// Without the option `with_prepared_statements(false)`, a write fails with an error that names the
/// option, and stores nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_a_missing_prepared_statement_names_the_option() {
    let one = PgBouncer::start(server(), PoolMode::Transaction, 1);
    let one = required(one, "the PostgreSQL store behind PgBouncer");
    let address = one.address("postgres");
    let key = key("found under another name");
    let options = options().with_max_connections(1);
    let prepared = options.clone().connect(&address).await.unwrap();
    let revision = append(&prepared, write(&key, Revision::ABSENT, &["first"])).await.unwrap();

    // `DEALLOCATE ALL` on the only connection of the pooler has the effect of a switch to another
    // connection.
    crate::common::raw(&address).await.batch_execute("DEALLOCATE ALL").await.unwrap();

    let second = write(&key, revision, &["second"]);
    let error = append(&prepared, second.clone()).await.unwrap_err().source;
    let StoreError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("with_prepared_statements"), "{source}");
    assert!(!error.is_retryable());

    let whole = options.with_prepared_statements(false).connect(&address).await.unwrap();
    append(&whole, second).await.unwrap();
    assert_eq!(texts(&whole, &key).await, ["first", "second"]);
}
