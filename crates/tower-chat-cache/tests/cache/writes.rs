//! Tests that a write updates the cache, so that the conversation is not read again.

use std::sync::Arc;

use tower_chat_core::{
    ApprovalRequest, Message, MessageId, Part, Role, RunId, ToolCall, ToolStatus,
    store::{
        HistoryStore, Maintenance, Revision, SequencePosition,
        author::{Close, ToolRecord, Write},
    },
};

use tower_chat_cache::CachingStore;

use crate::common::{append, cache, key, reads, staged, texts, write};

#[tokio::test]
async fn a_conversation_that_this_store_has_created_is_never_loaded() {
    let store = cache();
    assert_eq!(store.head(&key()).await.unwrap().revision, Revision::ABSENT);
    assert_eq!(reads(store.inner()), (0, 1));
    let at = append(&store, write(Revision::ABSENT, &["1", "2"])).await.unwrap();
    let at = append(&store, write(at, &["3"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1", "2", "3"]);
    assert_eq!(store.head(&key()).await.unwrap().revision, at);
    assert_eq!(reads(store.inner()), (0, 1));
    let statistics = store.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.revalidated), (2, 1, 0));
    assert_eq!(store.load(&key()).await.unwrap().well_formed_messages(), 3);
}

#[tokio::test]
async fn a_history_is_loaded_once_and_then_extended_with_each_write() {
    let store = cache();
    let at = append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1"]);
    let at = append(&store, write(at, &["2"])).await.unwrap();
    append(&store.clone(), write(at, &["3"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1", "2", "3"]);
    assert_eq!(reads(store.inner()), (1, 0));
    store.head(&key()).await.unwrap();
    store.head(&key()).await.unwrap();
    assert_eq!(reads(store.inner()), (1, 1), "a load does not return the pending approvals");
}

/// A value that a reader derived from a history is available to the reader of the longer history
/// after a write.
#[tokio::test]
async fn the_memo_of_a_history_remains_after_writes_and_is_gone_after_a_deletion() {
    let store = cache();
    let at = append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    store.load(&key()).await.unwrap().memo().set("derived");
    let derived = async || store.load(&key()).await.unwrap().memo().get::<&str>();
    let at = append(&store, write(at, &["2"])).await.unwrap();
    assert!(derived().await.is_some());
    let id = |index| MessageId { run: RunId::from_bytes([9; 16]), index };
    let message = |text| Arc::new(Message::user(text));
    let first = Write::new(key(), id(0), at, [message("3")]).staged(staged(1, None));
    let last = Write::new(key(), id(1), first.result(), [message("4")])
        .staged(staged(1, Some(Close::Commit)));
    append(&store, first).await.unwrap();
    assert_eq!(texts(&store).await, ["1", "2"]);
    assert!(derived().await.is_some());
    append(&store, last).await.unwrap();
    assert_eq!(texts(&store).await, ["1", "2", "3", "4"]);
    assert!(derived().await.is_some());
    assert_eq!(store.inner().loads(), 1);
    store.delete(&key()).await.unwrap();
    assert!(derived().await.is_none());
}

#[tokio::test]
async fn a_discarded_run_does_not_change_the_cached_history() {
    let store = cache();
    store.head(&key()).await.unwrap();
    let at = append(&store, write(Revision::ABSENT, &["1"])).await.unwrap();
    let first = write(at, &["gone"]).staged(staged(1, None));
    let discard = Close::Discard { visible: 1 };
    let id = MessageId { run: first.run(), index: 1 };
    let last = Write::new(key(), id, first.result(), []).staged(staged(1, Some(discard)));
    append(&store, first).await.unwrap();
    assert!(store.head(&key()).await.unwrap().open_run.is_some());
    let at = append(&store, last).await.unwrap();
    assert_eq!(store.head(&key()).await.unwrap().open_run, None);
    append(&store, write(at, &["2"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1", "2"]);
    assert_eq!(reads(store.inner()), (0, 1));
}

/// The cache does not contain the staged messages of a run that another process opened.
#[tokio::test]
async fn the_history_is_loaded_again_after_the_commit_of_a_run_opened_by_another_process() {
    let store = cache();
    let first = write(Revision::ABSENT, &["staged"]).staged(staged(1, None));
    append(store.inner(), first.clone()).await.unwrap();
    assert_eq!(texts(&store).await, Vec::<String>::new());
    let id = MessageId { run: first.run(), index: 1 };
    let message = Arc::new(Message::user("last"));
    let last =
        Write::new(key(), id, first.result(), [message]).staged(staged(1, Some(Close::Commit)));
    append(&store, last).await.unwrap();
    assert_eq!(texts(&store).await, ["staged", "last"]);
    assert_eq!(store.inner().loads(), 2);
}

#[tokio::test]
async fn the_head_is_read_again_after_a_write_that_changes_pending_approvals() {
    let store = cache();
    store.head(&key()).await.unwrap();
    let call = ToolCall::new("c1", "pay", "{}");
    let request = ApprovalRequest::new("r1", call, true);
    let part = Part::ApprovalRequest(request.clone());
    let message = Arc::new(Message::new(Role::Assistant, vec![part]));
    let mut row = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "c1", "pay");
    row.status = ToolStatus::PendingApproval;
    let id = MessageId { run: RunId::new(), index: 0 };
    let asking = Write::new(key(), id, Revision::ABSENT, [message]).with_tools(vec![row.clone()]);
    let at = append(&store, asking).await.unwrap();
    let pending = async || store.head(&key()).await.unwrap().pending_approvals;
    assert_eq!(pending().await, [[request]]);
    pending().await;
    assert_eq!(reads(store.inner()), (0, 2));
    row.status = ToolStatus::Ok;
    append(&store, write(at, &["done"]).with_tools(vec![row])).await.unwrap();
    assert!(pending().await.is_empty());
    assert_eq!(reads(store.inner()), (0, 3));
    assert_eq!(store.load(&key()).await.unwrap().messages.len(), 2);
    assert_eq!(reads(store.inner()), (0, 3));
}

#[tokio::test]
async fn staged_calls_are_pending_approvals_only_after_the_commit() {
    let store = cache();
    store.head(&key()).await.unwrap();
    let call = ToolCall::new("c1", "pay", "{}");
    let request = ApprovalRequest::new("r1", call, true);
    let part = Part::ApprovalRequest(request.clone());
    let message = Arc::new(Message::new(Role::Assistant, vec![part]));
    let mut row = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "c1", "pay");
    row.status = ToolStatus::PendingApproval;
    let id = |index| MessageId { run: RunId::from_bytes([9; 16]), index };
    let asking = Write::new(key(), id(0), Revision::ABSENT, [message])
        .with_tools(vec![row])
        .staged(staged(1, None));
    let commit =
        Write::new(key(), id(1), asking.result(), []).staged(staged(1, Some(Close::Commit)));
    append(&store, asking).await.unwrap();
    let pending = async || store.head(&key()).await.unwrap().pending_approvals;
    assert!(pending().await.is_empty());
    append(&store, commit).await.unwrap();
    assert_eq!(reads(store.inner()), (0, 2));
    assert_eq!(pending().await, [[request]]);
    assert_eq!(reads(store.inner()), (0, 3));
}

#[tokio::test]
async fn a_fork_replaces_the_cache_entry_of_its_target() {
    let (store, copy) = (cache(), tower_chat_core::ConversationKey::new("alice", "copy"));
    store.head(&key()).await.unwrap();
    store.head(&copy).await.unwrap();
    append(&store, write(Revision::ABSENT, &["1"])).await.unwrap();
    let at = store.fork_at(&key(), None, &copy).await.unwrap().revision;
    assert_eq!(store.load(&copy).await.unwrap().head.revision, at);
    assert_eq!(store.head(&copy).await.unwrap().revision, at);
    assert_eq!(texts(&store).await, ["1"]);
}

#[tokio::test]
async fn a_forgotten_conversation_is_read_again() {
    let store = cache();
    texts(&store).await;
    store.forget(&key());
    texts(&store).await;
    texts(&store).await;
    assert_eq!(reads(store.inner()), (2, 0));
}

#[test]
fn a_caching_store_can_be_cloned_although_its_inner_store_cannot() {
    fn cloned<S: HistoryStore>(cache: &CachingStore<S>) -> CachingStore<S> {
        cache.clone()
    }
    let cache = cache();
    cache.forget(&key());
    assert_eq!(cloned(&cache).statistics(), cache.statistics());
}
