//! Everything that a store promises, on a real server.

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
            heavy: "the plain tables show it"
    );
}

mod cached {
    use tower_chat_cache::CachingStore;

    use crate::common::{open, options};

    tower_chat_testkit::store_contract!(
            CachingStore::new(open(options()).await);
            heavy: "the plain tables show it"
    );
}
