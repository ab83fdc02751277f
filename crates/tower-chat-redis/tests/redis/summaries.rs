//! Tests of summaries with several handles of one store, and of their expiry.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use crate::common::{address, append, ask, key, open, options, prefix, raw, write};
use tower_chat_core::store::{AddedSummary, HistoryStore, HistorySummary, Revision, Summaries};
use tower_chat_testkit::store_contract::{self, Store};

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_waits_for_no_slot() {
    let store = open(options().with_max_queued(1)).await;
    store_contract::a_summary_waits_for_no_slot(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_summarize_one_conversation() {
    let prefix = prefix();
    let open = async || {
        let store: Store = Arc::new(open(options().with_prefix(&*prefix)).await);
        store
    };
    store_contract::two_processes_summarize_one_conversation(open).await;
}

#[tokio::test]
async fn summaries_expire_with_their_conversation() {
    let prefix = prefix();
    let options = options().with_prefix(&*prefix);
    let store = open(options.clone().with_time_to_live(Duration::from_secs(3600))).await;
    let mut connection = raw(&address()).await;
    let at = append(&store, write(&key("a"), Revision::ABSENT, &["1", "2"])).await.unwrap();
    let last = store.load(&key("a")).await.unwrap().message(1).unwrap().id.unwrap();
    let summary = HistorySummary::new(1, last, "one");
    let added = store.add_summary(&key("a"), &summary, 0).await.unwrap();
    assert_eq!(added, AddedSummary::Stored);
    let mut ends = async |part: &str| {
        let name = format!("{prefix}:{{scope/a}}:{part}");
        ask::<i64>(&mut connection, &["PEXPIRETIME", &name]).await.unwrap()
    };
    let first = ends("head").await;
    assert!(first > 0);
    assert_eq!(ends("summaries").await, first);
    tokio::time::sleep(Duration::from_millis(2)).await;
    append(&store, write(&key("a"), at, &["3"])).await.unwrap();
    let second = ends("head").await;
    assert!(second > first);
    assert_eq!(ends("summaries").await, second, "a write prolongs the summaries too");
    // A write of a store without a time to live removes the expiry.
    let store = open(options).await;
    let at = store.head(&key("a")).await.unwrap().revision;
    append(&store, write(&key("a"), at, &["4"])).await.unwrap();
    assert_eq!([ends("head").await, ends("summaries").await], [-1, -1]);
}

/// `repair` removes such a summary.
#[tokio::test]
async fn a_summary_in_force_that_is_not_stored_can_be_removed() {
    let prefix = prefix();
    let store = open(options().with_prefix(&*prefix)).await;
    let mut connection = raw(&address()).await;
    append(&store, write(&key("a"), Revision::ABSENT, &["1", "2"])).await.unwrap();
    let history = store.load(&key("a")).await.unwrap();
    let mut summaries = Vec::new();
    for covers_to in [1, 2] {
        let last = history.message(covers_to).unwrap().id.unwrap();
        let summary = HistorySummary::new(covers_to, last, "shorter").with_time(UNIX_EPOCH);
        let added = store.add_summary(&key("a"), &summary, 0).await.unwrap();
        assert_eq!(added, AddedSummary::Stored);
        summaries.push(summary);
    }
    let name = format!("{prefix}:{{scope/a}}:summaries");
    ask::<()>(&mut connection, &["HDEL", &name, "2"]).await.unwrap();
    assert_eq!(store.history_summaries(&key("a")).await.unwrap(), [summaries[0].clone()]);
    let in_force = async || store.head(&key("a")).await.unwrap().summary;
    assert_eq!(in_force().await, Some(summaries[1].in_force()));
    assert!(store.remove_summary(&key("a"), summaries[1].id).await.unwrap());
    assert_eq!(in_force().await, Some(summaries[0].in_force()));
}
