//! The rules for loading a part of a conversation, which is called a range. A [`LoadFrom`] value in
//! the head of the conversation selects the messages that the next run needs: leading messages, and
//! the messages after a gap. A staged message belongs to a run that is not committed yet.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Messages,
    store::{
        Capability, HistoryStore as _, Keep, Maintenance as _, Revision,
        author::{LoadFrom, Write},
    },
};

use super::{
    Store,
    fixture::{StagedRun, commit, has, key, lacks, staging, stored, submit, write},
};

fn range(leading: u64, after: u64) -> Arc<LoadFrom> {
    Arc::new(LoadFrom { leading, after, applies_to: format!("\"é\" after {after}") })
}

/// Stores messages with these texts and a [`LoadFrom`] for the next run. Returns the revision.
async fn written(
    store: &Store,
    key: &ConversationKey,
    at: Revision,
    texts: &[&str],
    from: &Arc<LoadFrom>,
) -> Revision {
    stored(store, write(key, at, texts).with_load_from(Some(from.clone()))).await
}

/// Stores six messages with a [`LoadFrom`] for the next run. Returns the revision.
async fn six(store: &Store, key: &ConversationKey, from: &Arc<LoadFrom>) -> Revision {
    let at = stored(store, write(key, Revision::ABSENT, &["1", "2", "3"])).await;
    written(store, key, at, &["4", "5", "6"], from).await
}

/// Checks that a load with `from` returns the selected leading messages and the end of the history,
/// or all messages. If the head contains a [`LoadFrom`], it must be `from`. Returns the sequence
/// number after which the loaded end of the history begins.
async fn assert_range(store: &Store, key: &ConversationKey, from: &Arc<LoadFrom>) -> u64 {
    let head = store.head(key).await.expect("the head is read");
    if let Some(found) = &head.load_from {
        assert_eq!(found, from);
    }
    let whole = store.load(key).await.expect("the history is loaded");
    let part = store.load_from(key, from).await.expect("the range is loaded");
    assert!(whole.is_whole());
    assert_eq!(part.head.revision, head.revision);
    assert_eq!(whole.head.load_from, head.load_from);
    assert_eq!(part.head.load_from, head.load_from);
    assert!(part.skipped() <= from.after.max(head.pruned), "{}", part.skipped());
    let expected = whole.numbered().filter(|(sequence, _)| *sequence > part.skipped());
    assert_eq!(part.numbered().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let leading: Messages = match part.is_whole() {
        true => Messages::new(),
        false => {
            let leading = whole.numbered().filter(|(sequence, _)| *sequence <= from.leading);
            leading.map(|(_, message)| message.clone()).collect()
        }
    };
    assert_eq!(part.leading, leading);
    part.skipped()
}

/// Checks that a load with a [`LoadFrom`] that is not in the head returns all messages.
async fn assert_whole(store: &Store, key: &ConversationKey, from: &LoadFrom) {
    let head = store.head(key).await.expect("the head is read");
    assert_ne!(head.load_from.as_deref(), Some(from));
    let whole = store.load(key).await.expect("the history is loaded");
    let part = store.load_from(key, from).await.expect("the range is loaded");
    assert!(part.is_whole());
    assert_eq!(part.messages, whole.messages);
    assert_eq!(part.leading, Messages::new());
}

/// Returns whether a store loads only the messages that the next run needs. A store may always load
/// all messages.
pub async fn loads_ranges(store: &Store) -> bool {
    let (key, from) = (key("loads ranges"), range(0, 4));
    six(store, &key, &from).await;
    assert_range(store, &key, &from).await == 4
}

/// A range consists of the leading messages and the end of the whole history. The range grows with
/// the conversation.
pub async fn a_range_is_the_end_of_the_history(store: Store) {
    for (leading, after) in [(0, 0), (0, 1), (1, 4), (2, 6), (6, 6)] {
        let key = key(&format!("{leading} and after {after}"));
        let from = range(leading, after);
        let at = six(&store, &key, &from).await;
        assert_range(&store, &key, &from).await;
        stored(&store, write(&key, at, &["7", "8"])).await;
        assert_range(&store, &key, &from).await;
    }
}

/// A load returns all messages if the head contains no [`LoadFrom`] or another one. The head
/// contains none if the conversation was deleted and created again, or is a copy.
pub async fn another_value_loads_the_whole_history(store: Store) {
    let (key, copy) = (key("another"), super::fixture::key("copy"));
    let (first, second) = (range(0, 3), range(1, 5));
    assert_whole(&store, &key, &first).await;
    let at = six(&store, &key, &first).await;
    assert_whole(&store, &key, &second).await;
    if has(&store, Capability::Maintenance) {
        store.fork_at(&key, None, &copy).await.expect("the conversation is forked");
        assert_whole(&store, &copy, &first).await;
    }
    written(&store, &key, at, &["7"], &second).await;
    assert_range(&store, &key, &second).await;
    assert_whole(&store, &key, &first).await;
    store.delete(&key).await.expect("the conversation is deleted");
    assert_whole(&store, &key, &second).await;
    stored(&store, write(&key, Revision::ABSENT, &["again"])).await;
    assert_whole(&store, &key, &second).await;
}

/// A write without messages changes the [`LoadFrom`] in the head. A write that is refused, or that
/// repeats a stored write, does not.
pub async fn a_write_sets_the_range_once(store: Store) {
    let key = key("once");
    let (first, second, third) = (range(0, 2), range(0, 4), range(0, 5));
    let at = six(&store, &key, &first).await;
    let later = write(&key, at, &["7"]).with_load_from(Some(second.clone()));
    let after = stored(&store, later.clone()).await;
    assert_range(&store, &key, &second).await;
    let refused = write(&key, at, &["not 7"]).with_load_from(Some(first));
    submit(&store, vec![refused]).await.expect_err("the conversation has changed");
    assert_range(&store, &key, &second).await;
    let empty = Write::new(key.clone(), later.id(), after, []);
    let end = stored(&store, empty.with_load_from(Some(third.clone()))).await;
    assert_range(&store, &key, &third).await;
    stored(&store, later).await;
    assert_eq!(store.head(&key).await.expect("the head is read").revision, end);
    assert_range(&store, &key, &third).await;
}

/// A staged write sets the [`LoadFrom`] before its run is committed. A range does not contain
/// staged messages.
pub async fn a_range_has_only_visible_messages(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let (key, from, later) = (key("staged range"), range(1, 3), range(1, 5));
    let at = six(&store, &key, &from).await;
    let mut run = StagedRun::new(&key, at);
    let staged = run.text(staging(1), "7").with_load_from(Some(later.clone()));
    stored(&store, staged).await;
    assert_range(&store, &key, &later).await;
    stored(&store, run.text(commit(1), "8")).await;
    assert_range(&store, &key, &later).await;
}

/// A range does not contain pruned messages.
pub async fn a_range_has_no_pruned_messages(store: Store) {
    if lacks(&store, &[Capability::Maintenance]) {
        return;
    }
    let (key, from) = (key("pruned range"), range(2, 4));
    let at = six(&store, &key, &from).await;
    stored(&store, write(&key, at, &["7"])).await;
    store.prune(&key, Keep::Messages(4)).await.expect("the conversation is pruned");
    assert_range(&store, &key, &from).await;
    store.prune(&key, Keep::Messages(1)).await.expect("the conversation is pruned");
    assert_range(&store, &key, &from).await;
}
