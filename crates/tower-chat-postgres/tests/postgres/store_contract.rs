//! Tests the store against the store contract, on a real server.

mod plain {
    use tower_chat_postgres::PostgresStore;

    use crate::common::{open, options, rows, schema};

    tower_chat_testkit::store_contract!(
            let schema = schema();
            open(options().with_schema(&*schema)).await;
            residual_data: {
                let schema = schema.clone();
                move |_: &PostgresStore| rows(schema.clone())
            }
    );
}

mod divided_with_row_level_security {
    use tower_chat_postgres::PostgresStore;

    use crate::common::{options, ordinary_user, rows, schema};

    tower_chat_testkit::store_contract!(
            let schema = schema();
            {
                let options = options().with_schema(&*schema).with_partitions(3).with_row_level_security(true);
                options.connect(&ordinary_user().await).await.unwrap()
            };
            residual_data: {
                let schema = schema.clone();
                move |_: &PostgresStore| rows(schema.clone())
            };
            one_runtime: "the tests with plain tables cover it";
            heavy: "the tests with plain tables cover it"
    );
}

/// Contract tests that compare revisions of two stores.
mod cached {
    use tower_chat_cache::CachingStore;

    use crate::common::{open, options};

    tower_chat_testkit::store_promises!(
            CachingStore::new(open(options()).await);
            a_write_at_another_revision_is_a_conflict_and_stores_nothing
            a_load_sees_what_was_submitted_before_it
            a_deleted_conversation_is_gone_and_its_key_can_be_used_again
            of_concurrent_writers_to_one_conversation_exactly_one_wins
            readers_see_messages_and_rows_of_a_write_together
            a_commit_shows_the_whole_run_at_once
            a_discarded_run_leaves_nothing
            of_two_that_take_a_run_over_one_holds_it
            a_fork_sees_what_was_submitted_before_it
            a_revision_from_before_a_prune_conflicts
            a_rewrite_at_another_revision_is_a_conflict
    );
}
