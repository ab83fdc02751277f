//! Tests the store against the store contract, on a real server.

mod for_ever {
    use tower_chat_redis::RedisStore;

    use crate::common::{open, options, prefix, values};

    tower_chat_testkit::store_contract!(
            let prefix = prefix();
            open(options().with_prefix(&*prefix)).await;
            residual_data: {
                let prefix = prefix.clone();
                move |_: &RedisStore| values(prefix.clone())
            }
    );
}

mod for_an_hour_over_one_connection {
    use std::time::Duration;

    use crate::common::{open, options};

    tower_chat_testkit::store_contract!(
            open(options().with_max_connections(1).with_time_to_live(Duration::from_secs(3600))).await;
            one_runtime: "the tests without a time to live cover it";
            heavy: "the tests without a time to live cover it"
    );
}
