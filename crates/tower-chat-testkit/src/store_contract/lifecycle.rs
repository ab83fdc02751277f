//! The rules for submissions (calls of `append`) whose
//! [ticket](tower_chat_core::store::author::Ticket), the future with the outcome, is not awaited.
//! Also the rules for closing a store, and for slots, which are reserved entries of the queue.

use futures_util::FutureExt;
use tower_chat_core::store::{
    CallSelection, Directory, InvocationQuery, Revision, StoreError, ToolCallQueries,
};

use super::{
    Store,
    fixture::{assert_listed, key, refused, revision, stored, texts, write},
};

/// A load includes every write that was submitted to the conversation before the load, even if the
/// ticket was not awaited.
pub async fn a_load_sees_what_was_submitted_before_it(store: Store) {
    let key = key("seen");
    let mut expected = Revision::ABSENT;
    let mut tickets = Vec::new();
    for count in 1..=50 {
        let write = write(&key, expected, &["one more"]);
        expected = write.result();
        let slot = store.reserve().await.expect("a slot is reserved");
        tickets.push(store.append(slot, vec![write]));
        assert_eq!(texts(&store, &key).await.len(), count);
    }
    for ticket in tickets {
        ticket.await.expect("the write is stored");
    }
}

/// The submissions of one caller are stored in the order of the calls of `append`.
pub async fn submissions_are_stored_in_the_order_they_were_made(store: Store) {
    let key = key("one after the other");
    let texts_written: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let mut expected = Revision::ABSENT;
    let mut tickets = Vec::new();
    for text in &texts_written {
        let write = write(&key, expected, &[text]);
        expected = write.result();
        let slot = store.reserve().await.expect("a slot is reserved");
        tickets.push(store.append(slot, vec![write]));
    }
    let mut last = None;
    for ticket in tickets {
        last = Some(ticket.await.expect("the write is stored"));
    }
    assert_eq!(last, Some(expected));
    assert_eq!(texts(&store, &key).await, texts_written);
}

/// A submitted write is stored even if its ticket is dropped.
pub async fn a_dropped_ticket_cancels_nothing(store: Store) {
    let key = key("dropped");
    let mut expected = Revision::ABSENT;
    for _ in 0..10 {
        let write = write(&key, expected, &["kept"]);
        expected = write.result();
        drop(store.append(store.reserve().await.expect("a slot is reserved"), vec![write]));
    }
    store.flush().await.expect("the store is flushed");
    assert_eq!(texts(&store, &key).await, ["kept"; 10]);
}

/// `append` may be called in `Drop`, and on a thread without a runtime.
pub async fn writes_can_be_submitted_where_nothing_can_be_awaited(store: Store) {
    let key = key("from drop");
    let slot = store.reserve().await.expect("a slot is reserved").without_blocking();
    let first = write(&key, Revision::ABSENT, &["on the runtime"]);
    let at = first.result();
    drop(store.append(slot, vec![first]));
    let slot = store.reserve().await.expect("a slot is reserved").without_blocking();
    let (other, second) = (store.clone(), write(&key, at, &["on another thread"]));
    let thread = std::thread::spawn(move || drop(other.append(slot, vec![second])));
    thread.join().expect("append does not panic outside of a runtime");
    assert_eq!(texts(&store, &key).await, ["on the runtime", "on another thread"]);
    store.flush().await.expect("the store is flushed");
}

/// When `flush` has completed, the ticket of every earlier submission is complete.
pub async fn flush_waits_for_everything_submitted(store: Store) {
    let mut tickets = Vec::new();
    for number in 0..20 {
        let write = write(&key(&format!("flush {number}")), Revision::ABSENT, &["x"]);
        let slot = store.reserve().await.expect("a slot is reserved").without_blocking();
        tickets.push(store.append(slot, vec![write]));
    }
    store.flush().await.expect("the store is flushed");
    for ticket in tickets {
        let outcome = ticket.now_or_never().expect("the write is complete after the flush");
        outcome.expect("the write is stored");
    }
}

/// `close` waits until the submitted writes are stored. Afterwards, writes are refused and reads
/// succeed.
pub async fn a_closed_store_keeps_what_it_has_and_takes_nothing_more(store: Store) {
    let key = key("closed");
    let first = write(&key, Revision::ABSENT, &["before"]);
    let after = first.result();
    let late = store.reserve().await.expect("a slot is reserved");
    let ticket = store.append(store.reserve().await.expect("a slot is reserved"), vec![first]);
    store.close().await.expect("the store is closed");
    assert_eq!(ticket.await.expect("the write is stored"), after);
    assert!(matches!(store.reserve().await, Err(StoreError::Closed)));
    assert!(store.try_reserve().is_none());
    let error = store.append(late, vec![write(&key, after, &["after"])]).await;
    let error = error.expect_err("a closed store takes no writes");
    assert_eq!(error.completed, 0);
    assert!(matches!(error.source, StoreError::Closed), "{error:?}");
    assert_eq!(texts(&store, &key).await, ["before"]);
    assert_eq!(revision(&store, &key).await, after);
    assert_listed(&store, "scope", &[key]).await;
}

/// If a slot, or the future of a reservation, is dropped, the slot is available again.
pub async fn slots_that_are_dropped_are_free_again(store: Store) {
    for _ in 0..20_000 {
        drop(store.reserve().await.expect("a slot is reserved"));
        drop(store.reserve().now_or_never());
        drop(store.try_reserve());
    }
    stored(&store, write(&key("slots"), Revision::ABSENT, &["x"])).await;
}

/// If the future of a read is dropped, later operations still succeed.
pub async fn reads_that_are_dropped_leave_no_trace(store: Store) {
    let key = key("given up");
    let at = stored(&store, write(&key, Revision::ABSENT, &["1"])).await;
    for _ in 0..200 {
        drop(store.load(&key).now_or_never());
        drop(store.head(&key).now_or_never());
        drop(store.list("scope", None, 10).now_or_never());
        drop(store.calls(&key, &CallSelection::All).now_or_never());
        drop(store.invocations(&InvocationQuery::of(&key)).now_or_never());
        drop(store.tool_totals(&InvocationQuery::of(&key)).now_or_never());
        drop(store.flush().now_or_never());
    }
    stored(&store, write(&key, at, &["2"])).await;
    assert_eq!(texts(&store, &key).await, ["1", "2"]);
}

/// A deletion removes all data of a conversation. A new conversation with the same key has another
/// incarnation, which is a random number.
pub async fn a_deleted_conversation_is_gone_and_its_key_can_be_used_again(store: Store) {
    let (key, other) = (key("deleted"), key("kept"));
    let old = write(&key, Revision::ABSENT, &["old", "older"])
        .with_service_id(tower_chat_core::store::ServiceIdChange::Set("conv_1".into()));
    let old_revision = stored(&store, old).await;
    stored(&store, write(&other, Revision::ABSENT, &["kept"])).await;
    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    assert!(!store.delete(&key).await.expect("an absent conversation is deleted"));
    assert_eq!(revision(&store, &key).await, Revision::ABSENT);
    assert_eq!(texts(&store, &key).await, Vec::<String>::new());
    assert_listed(&store, "scope", std::slice::from_ref(&other)).await;
    assert_eq!(refused(&store, write(&key, old_revision, &["x"])).await.found, Revision::ABSENT);

    let new_revision = stored(&store, write(&key, Revision::ABSENT, &["new", "newer"])).await;
    assert_eq!(new_revision.sequence, old_revision.sequence);
    assert_ne!(new_revision.incarnation, old_revision.incarnation);
    assert_eq!(refused(&store, write(&key, old_revision, &["x"])).await.found, new_revision);
    assert_eq!(texts(&store, &key).await, ["new", "newer"]);
    assert_eq!(store.head(&key).await.expect("the head is read").service_id, None);
    assert_eq!(texts(&store, &other).await, ["kept"]);
}
