//! Tests of loads of a part of a conversation. [`FaultyStore`](tower_chat_testkit::FaultyStore)
//! loads only the selected messages.

use std::sync::Arc;

use futures_util::FutureExt;
use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::{
    MemoryStore, MessageId, Messages,
    store::{
        History, HistoryStore, Keep, Maintenance, Revision,
        author::{Close, LoadFrom, Write},
    },
};
use tower_chat_testkit::{FaultyStore, Gate};

use crate::common::{Cache, append, cache, cache_with, key, reads, staged, texts, write};

fn range(leading: u64, after: u64) -> Arc<LoadFrom> {
    Arc::new(LoadFrom { leading, after, applies_to: "any".to_owned() })
}

/// Stores six messages in the inner store, and the part of them that the next run needs.
async fn six(store: &Cache, from: &Arc<LoadFrom>) -> Revision {
    let write = write(Revision::ABSENT, &["1", "2", "3", "4", "5", "6"]);
    append(store.inner(), write.with_load_from(Some(from.clone()))).await.unwrap()
}

async fn part(store: &Cache, from: &LoadFrom) -> History {
    store.load_from(&key(), from).await.unwrap()
}

/// Checks the texts of the leading messages, and of the messages after the skipped ones.
fn assert_part(history: &History, leading: &[&str], after: u64, messages: &[&str]) {
    let texts =
        |messages: &Messages| messages.iter().map(|message| message.text()).collect::<Vec<_>>();
    assert_eq!(texts(&history.leading), leading);
    assert_eq!(history.skipped(), after);
    assert_eq!(texts(&history.messages), messages);
}

#[tokio::test]
async fn a_cached_part_of_a_conversation_grows_with_each_write() {
    for (revalidation, heads) in [(Revalidation::Never, 0), (Revalidation::Always, 3)] {
        let store = cache_with(revalidation);
        let from = range(1, 4);
        let at = six(&store, &from).await;
        assert_part(&part(&store, &from).await, &["1"], 4, &["5", "6"]);
        assert_part(&part(&store, &from).await, &["1"], 4, &["5", "6"]);
        let at = append(&store, write(at, &["7"])).await.unwrap();
        let found = part(&store, &from).await;
        assert_part(&found, &["1"], 4, &["5", "6", "7"]);
        assert_eq!(found.head.revision, at);
        assert_eq!(found.numbered().last().unwrap().0, 7);
        // The run that has loaded the part stores another value, which selects fewer messages.
        let later = range(1, 6);
        let next = write(at, &["8"]).with_load_from(Some(later.clone()));
        append(&store, next).await.unwrap();
        let found = part(&store, &later).await;
        assert_part(&found, &["1"], 4, &["5", "6", "7", "8"]);
        assert_eq!(found.head.load_from, Some(later));
        assert_eq!(reads(store.inner()), (1, heads));
        let statistics = store.statistics();
        assert_eq!((statistics.misses, statistics.hits + statistics.revalidated), (1, 3));
    }
}

#[tokio::test]
async fn a_whole_load_replaces_a_part_and_answers_later_loads_of_parts() {
    for revalidation in [Revalidation::Never, Revalidation::Always] {
        let store = cache_with(revalidation);
        let from = range(1, 4);
        six(&store, &from).await;
        part(&store, &from).await;
        assert_eq!(texts(&store).await, ["1", "2", "3", "4", "5", "6"]);
        assert_eq!(store.inner().loads(), 2);
        assert!(part(&store, &from).await.is_whole());
        assert_eq!(texts(&store).await, ["1", "2", "3", "4", "5", "6"]);
        assert_eq!(store.inner().loads(), 2);
    }
}

/// The cached part lacks messages if the new value selects earlier messages, or other leading
/// messages.
#[tokio::test]
async fn a_part_is_loaded_again_if_the_cached_part_lacks_selected_messages() {
    for other in [range(1, 3), range(2, 4), range(0, 5)] {
        let store = cache();
        let from = range(1, 4);
        let at = six(&store, &from).await;
        part(&store, &from).await;
        let next = write(at, &["7"]).with_load_from(Some(other.clone()));
        append(&store, next).await.unwrap();
        let found = part(&store, &other).await;
        assert_eq!(found.skipped(), other.after);
        assert_eq!(found.leading.len() as u64, other.leading);
        assert_eq!(store.inner().loads(), 2, "{other:?}");
        part(&store, &other).await;
        assert_eq!(store.inner().loads(), 2, "{other:?}");
        // With a value that the conversation no longer has, all messages are loaded.
        assert!(part(&store, &from).await.is_whole());
    }
}

#[tokio::test]
async fn a_part_is_loaded_again_after_a_change_by_another_process() {
    let store = cache_with(Revalidation::Always);
    let (from, later) = (range(1, 4), range(1, 5));
    let at = six(&store, &from).await;
    part(&store, &from).await;
    let next = write(at, &[]).with_load_from(Some(later.clone()));
    append(store.inner(), next).await.unwrap();
    assert_part(&part(&store, &later).await, &["1"], 5, &["6"]);
    assert_eq!(store.inner().loads(), 2);
    append(store.inner(), write(at, &["theirs"])).await.unwrap();
    assert_part(&part(&store, &later).await, &["1"], 5, &["6", "theirs"]);
    store.inner().prune(&key(), Keep::Messages(1)).await.unwrap();
    let found = part(&store, &later).await;
    assert!(found.is_whole());
    assert_eq!(found.messages.len(), 1);
    store.inner().delete(&key()).await.unwrap();
    assert!(part(&store, &later).await.messages.is_empty());
}

/// Another process has changed the value since the caller read the head.
#[tokio::test]
async fn a_load_with_an_outdated_load_from_value_is_not_a_hit() {
    let store = cache_with(Revalidation::Always);
    let from = range(1, 4);
    let at = six(&store, &from).await;
    part(&store, &from).await;
    append(store.inner(), write(at, &[]).with_load_from(Some(range(0, 1)))).await.unwrap();
    assert!(part(&store, &from).await.is_whole());
    assert_eq!(store.statistics().revalidated, 0);
}

#[tokio::test]
async fn a_committed_run_extends_the_cached_part() {
    let store = cache();
    let from = range(0, 4);
    let at = six(&store, &from).await;
    part(&store, &from).await;
    let first = write(at, &["7"]).staged(staged(1, None));
    append(&store, first.clone()).await.unwrap();
    assert_part(&part(&store, &from).await, &[], 4, &["5", "6"]);
    let id = MessageId { run: first.run(), index: 1 };
    let close = Some(Close::Commit);
    let commit = Write::new(key(), id, first.result(), []);
    append(&store, commit.staged(staged(1, close))).await.unwrap();
    assert_part(&part(&store, &from).await, &[], 4, &["5", "6", "7"]);
    assert_eq!(store.inner().loads(), 1);
}

/// A load of the whole conversation does not share a load of a part. A load of a part shares the
/// load of the whole conversation, and a load of the same part.
#[tokio::test]
async fn concurrent_loads_share_only_a_load_of_all_messages_that_they_need() {
    for is_part_first in [true, false] {
        let store = cache();
        let (from, key) = (range(1, 4), key());
        six(&store, &from).await;
        let gate = Gate::closed();
        store.inner().hold_next_load(&gate);
        let first = match is_part_first {
            true => store.load_from(&key, &from).boxed(),
            false => store.load(&key).boxed(),
        };
        let mut loads = [first, store.load_from(&key, &from).boxed()];
        for load in &mut loads {
            assert!(load.now_or_never().is_none());
        }
        if is_part_first {
            let whole = store.load(&key).now_or_never().expect("the load is another one");
            assert!(whole.unwrap().is_whole());
        }
        gate.open();
        for load in loads {
            assert_eq!(load.await.unwrap().is_whole(), !is_part_first);
        }
        assert!(store.load(&key).await.unwrap().is_whole());
        assert_eq!(store.inner().loads(), if is_part_first { 2 } else { 1 });
    }
}

/// The bound of the cache counts the leading messages.
#[tokio::test]
async fn the_size_of_a_cached_part_includes_its_leading_messages() {
    let bytes = async |leading| {
        let options = CacheOptions::new().with_revalidation(Revalidation::Never);
        let store = CachingStore::with_options(FaultyStore::new(MemoryStore::new()), options);
        let from = range(leading, 2);
        let long = "x".repeat(100_000);
        let write = write(Revision::ABSENT, &[&long, "2", "3"]);
        append(store.inner(), write.with_load_from(Some(from.clone()))).await.unwrap();
        assert!(!part(&store, &from).await.is_whole());
        store.statistics().bytes
    };
    let (without, with) = (bytes(0).await, bytes(1).await);
    assert!(with > without + 100_000, "{without} and {with}");
}
