//! Tests of loading a part of a conversation.

use std::{sync::Arc, time::Duration};

use tower_chat_core::{
    Messages,
    store::{
        HistoryStore as _, Revision,
        author::{LAST_SEQUENCE, LoadFrom},
    },
};
use tower_chat_testkit::store_contract::{self, Store};

use crate::common::{address, append, ask, key, open, options, prefix, raw, texts, write};

fn range(leading: u64, after: u64) -> Arc<LoadFrom> {
    Arc::new(LoadFrom { leading, after, applies_to: "any\0".to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_selected_messages_are_loaded() {
    let store: Store = Arc::new(open(options()).await);
    assert!(store_contract::loads_ranges(&store).await);
    let hour = options().with_time_to_live(Duration::from_secs(3600));
    let store: Store = Arc::new(open(hour).await);
    assert!(store_contract::loads_ranges(&store).await);
}

/// The leading messages and the later messages are read in several pages each.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_a_range_with_several_pages_returns_all_selected_messages() {
    let store = open(options()).await;
    let long = "x".repeat(400_000);
    let all: Vec<String> = (1..=20).map(|number| format!("{number} {long}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for (leading, after) in [(0, 2), (1, 2), (4, 6), (5, 15), (3, 20), (20, 20), (7, 7)] {
        let (key, from) = (key(&format!("{leading} {after}")), range(leading, after));
        let first = write(&key, Revision::ABSENT, &all).with_load_from(Some(from.clone()));
        append(&store, first).await.unwrap();
        let part = store.load_from(&key, &from).await.unwrap();
        assert_eq!(part.skipped(), after);
        let texts =
            |messages: &Messages| messages.iter().map(|message| message.text()).collect::<Vec<_>>();
        assert!(texts(&part.leading) == all[..leading as usize], "{from:?}");
        assert!(texts(&part.messages) == all[after as usize..], "{from:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_with_a_range_that_was_damaged_on_the_server_returns_all_messages() {
    let prefix = prefix();
    let store = open(options().with_prefix(&*prefix)).await;
    let mut connection = raw(&address()).await;
    let damages = ["{}", "none", "", "\u{e9}", &range(0, 200).to_json(), &range(3, 2).to_json()];
    for (number, damaged) in damages.into_iter().enumerate() {
        let (key, from) = (key(&format!("{number}")), range(0, 2));
        let first = write(&key, Revision::ABSENT, &["one", "two", "three"]);
        append(&store, first.with_load_from(Some(from.clone()))).await.unwrap();
        let name = format!("{prefix}:{{scope/{number}}}:head");
        let added = ask::<i64>(&mut connection, &["HSET", &name, "load_from", damaged]).await;
        assert_eq!(added.unwrap(), 0, "the field exists");
        let found = store.head(&key).await.unwrap().load_from;
        let tried = [range(0, 2), range(0, 200), range(3, 2), range(0, LAST_SEQUENCE + 1)];
        for from in found.into_iter().chain(tried) {
            let loaded = store.load_from(&key, &from).await.unwrap();
            assert!(loaded.is_whole(), "{damaged} with {from:?}");
            assert_eq!(loaded.messages.len(), 3, "{damaged} with {from:?}");
        }
        assert_eq!(texts(&store, &key).await, ["one", "two", "three"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_a_range_fails_if_a_selected_message_is_missing() {
    for (missing, is_selected) in [(1, true), (2, false), (4, false), (5, true), (6, true)] {
        let prefix = prefix();
        let store = open(options().with_prefix(&*prefix)).await;
        let from = range(1, 4);
        let first = write(&key("c"), Revision::ABSENT, &["1", "2", "3", "4", "5", "6"]);
        append(&store, first.with_load_from(Some(from.clone()))).await.unwrap();
        let mut connection = raw(&address()).await;
        let (name, field) = (format!("{prefix}:{{scope/c}}:messages"), missing.to_string());
        assert_eq!(ask::<i64>(&mut connection, &["HDEL", &name, &field]).await.unwrap(), 1);
        store.load(&key("c")).await.unwrap_err();
        assert_eq!(store.load_from(&key("c"), &from).await.is_err(), is_selected, "{missing}");
    }
}
