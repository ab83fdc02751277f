//! The rule that a store with sealed (encrypted) data refuses writes that are not sealed.

use tower_chat_core::{
    Message,
    store::{
        AddedSummary, Capability, Description, Directory, HistoryStore, Keep, Maintenance,
        Revision, Rewrite, StoreError, Summaries,
        author::{AppendError, Write},
    },
};

use super::{
    Store,
    fixture::{has, key, revision, stored, submit, texts, write},
    summaries::{add, assert_summaries, summary},
};

/// After a [sealed](Write::sealed) write, a store refuses every change that is not sealed. The rule
/// also applies to stores that were opened before the write, as by another process, and to stores
/// that are opened later. The test calls `open` three times, and each call must open the same data.
/// At first, the store must be empty. It must have a directory, and keep its data after the process
/// has ended.
pub async fn plain_changes_are_refused_once_a_sealed_write_is_stored(
    open: impl AsyncFn() -> Store,
) {
    let (store, other) = (open().await, open().await);
    // After these changes, `other` may have cached that there is no sealed data.
    stored(&other, write(&key("plain"), Revision::ABSENT, &["hi"])).await;
    assert!(other.delete(&key("plain")).await.expect("the conversation is deleted"));
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        at = stored(&store, write(&key("c"), at, &[text]).sealed()).await;
    }
    for store in [&store, &other, &open().await] {
        assert_plain_changes_are_refused(store, at).await;
    }
    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.is_sealed = true;
    rewrite.messages.push((3, Message::user("changed")));
    store.rewrite(rewrite).await.expect("the sealed rows are rewritten");
    let pruned = store
        .prune(&key("c"), Keep::Messages(1).sealed())
        .await
        .expect("the sealed conversation is pruned");
    assert_eq!(pruned.messages, 2);
    let described = store.set_description(&key("c"), &Description::new().sealed(), 0).await;
    described.expect("the sealed description is set");
    assert_eq!(texts(&store, &key("c")).await, ["changed"]);
    if has(&store, Capability::Summaries) {
        let mut summary = summary(&store, &key("c"), 3, "sealed").await;
        summary.is_sealed = true;
        assert_eq!(add(&store, &key("c"), &summary, 1).await, AddedSummary::Stored);
        summary.is_sealed = false;
        assert_summaries(&store, &key("c"), &[&summary]).await;
        let removed = other.remove_summary(&key("c"), summary.id).await;
        assert!(removed.expect("the removal needs no encryption keys"));
    }
    assert!(
        other.delete(&key("c")).await.expect("the conversation is deleted"),
        "a deletion needs no encryption keys"
    );
}

async fn plain(store: &Store, write: Write) -> StoreError {
    let error: AppendError = submit(store, vec![write]).await.expect_err("it is refused");
    error.source
}

/// Tries every kind of change without the mark `sealed`.
async fn assert_plain_changes_are_refused(store: &Store, at: Revision) {
    // As a real writer does, reads the revision before the writes.
    assert_eq!(revision(store, &key("c")).await, at);
    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.messages.push((1, Message::user("changed")));
    let description = Description::new().with_title("title").expect("a short title");
    let refused = [
        plain(store, write(&key("new"), Revision::ABSENT, &["plain"])).await,
        plain(store, write(&key("c"), at, &["plain"])).await,
        store.prune(&key("c"), Keep::Messages(1)).await.expect_err("a plain prune"),
        store.fork_at(&key("c"), None, &key("copy")).await.expect_err("a plain copy"),
        store.rewrite(rewrite).await.expect_err("a plain rewrite"),
        store.set_description(&key("c"), &description, 0).await.expect_err("a plain description"),
    ];
    let summary = summary(store, &key("c"), 1, "plain").await;
    let refused_summary = has(store, Capability::Summaries)
        .then_some(store.add_summary(&key("c"), &summary, 0).await.expect_err("a plain summary"));
    for error in refused.into_iter().chain(refused_summary) {
        assert!(matches!(error, StoreError::Sealed), "{error:?}");
        assert!(!error.is_retryable());
    }
    assert_eq!(texts(store, &key("c")).await, ["one", "two", "three"]);
    assert_eq!(revision(store, &key("c")).await, at);
    assert_eq!(store.list(key("c").scope(), None, 9).await.expect("the list is read"), [key("c")]);
}
