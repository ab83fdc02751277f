//! Tests of summaries with several handles of one store.

use std::sync::Arc;

use crate::common::{open, options, schema};
use tower_chat_testkit::store_contract::{self, Store};

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_waits_for_no_slot() {
    let store = open(options().with_max_queued(1)).await;
    store_contract::a_summary_waits_for_no_slot(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_summarize_one_conversation() {
    let schema = schema();
    let open = async || {
        let store: Store = Arc::new(open(options().with_schema(&*schema)).await);
        store
    };
    store_contract::two_processes_summarize_one_conversation(open).await;
}
