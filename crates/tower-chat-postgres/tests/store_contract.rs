//! Everything that a store promises, on a real server.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in the opening of a test too")]

mod common;

mod plain {
    use super::common::{open, options};

    tower_chat_testkit::store_contract!(open(options()).await);
}

mod divided_with_row_level_security {
    use super::common::{options, ordinary_user};

    tower_chat_testkit::store_contract!({
        let options = options().partitions(3).row_level_security(true);
        options.connect(&ordinary_user().await).await.unwrap()
    });
}

mod cached {
    use tower_chat_cache::CachingStore;

    use super::common::{open, options};

    tower_chat_testkit::store_contract!(CachingStore::new(open(options()).await));
}
