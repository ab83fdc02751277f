//! The rules for futures that are dropped before they complete. Each test drops a future at each of
//! its awaits. A prune deletes the oldest runs of a conversation, and a rewrite changes stored
//! messages.

use std::{future::poll_fn, pin::pin, task::Poll};

use tower_chat_core::{
    ConversationKey, Message, RunId, ToolStatus,
    store::{
        AddedSummary, CallSelection, Directory, HistoryStore, InvocationQuery, Journal, Keep,
        Maintenance, Revision, Rewrite, StoreError, Summaries, ToolCallQueries,
        author::{RecordedResult, Write},
    },
};

use super::{
    Store,
    fixture::{
        asking, key, pending, position, recorded, revision, stored, texts, with_outcome, write,
        write_messages,
    },
    summaries::{add, added, assert_summaries, summary},
};

/// Polls a future at most `times` times, and then drops it. Returns the output, if any.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut left = times;
    let mut future = pin!(future);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The visible state of a conversation.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    revision: Revision,
    pruned: u64,
    texts: Vec<String>,
    calls: usize,
}

async fn seen(store: &Store, key: &ConversationKey) -> Seen {
    Seen {
        revision: revision(store, key).await,
        pruned: store.head(key).await.expect("the head is read").pruned,
        texts: texts(store, key).await,
        calls: recorded(store, key).await.len(),
    }
}

/// Returns the visible state of a conversation. Checks that a flush does not change this state.
async fn settled(store: &Store, key: &ConversationKey) -> Seen {
    let first = seen(store, key).await;
    store.flush().await.expect("the store is flushed");
    assert_eq!(seen(store, key).await, first, "{key}: the store changed between two reads");
    first
}

/// Writes two runs, of which the first has a tool call. Returns the visible state.
async fn filled(store: &Store, key: &ConversationKey) -> Seen {
    let row = with_outcome(pending(1, 0, "tool"), ToolStatus::Ok, RecordedResult::None);
    let first = write_messages(key, Revision::ABSENT, [asking(&["tool"])]).with_tools(vec![row]);
    let at = stored(store, first).await;
    stored(store, write(key, at, &["2"])).await;
    seen(store, key).await
}

/// Checks that a conversation can be continued after a future was dropped.
async fn assert_can_continue(store: &Store, key: &ConversationKey) {
    let before = seen(store, key).await;
    stored(store, write(key, before.revision, &["it goes on"])).await;
    assert_eq!(texts(store, key).await.len(), before.texts.len() + 1);
}

/// The maximum number of polls after which a future must have completed.
const MAX_POLLS: usize = 10_000;

/// A read changes nothing, even if its future is dropped.
pub async fn readings_dropped_at_any_await_change_nothing(store: Store) {
    let key = key("read");
    let before = filled(&store, &key).await;
    let query = InvocationQuery::of(&key);
    for reading in 0..12 {
        for times in 0..MAX_POLLS {
            let done = match reading {
                0 => polled(store.head(&key), times).await.map(|it| it.map(drop)),
                1 => polled(store.load(&key), times).await.map(|it| it.map(drop)),
                2 => polled(store.open_run(&key), times).await.map(|it| it.map(drop)),
                3 => polled(store.open_runs("scope", None, 9), times).await.map(|it| it.map(drop)),
                4 => polled(store.list("scope", None, 9), times).await.map(|it| it.map(drop)),
                5 => polled(store.invocations(&query), times).await.map(|it| it.map(drop)),
                6 => polled(store.tool_totals(&query), times).await.map(|it| it.map(drop)),
                7 => polled(store.reserve(), times).await.map(|it| it.map(drop)),
                8 => polled(store.calls(&key, &CallSelection::All), times)
                    .await
                    .map(|it| it.map(drop)),
                9 => polled(store.history_summaries(&key), times).await.map(|it| it.map(drop)),
                10 => polled(store.history_summary(&key, 1), times).await.map(|it| it.map(drop)),
                _ => polled(store.flush(), times).await,
            };
            if let Some(outcome) = done {
                match outcome {
                    Ok(()) | Err(StoreError::MissingCapability { .. }) => {}
                    Err(error) => panic!("the operation failed: {error}"),
                }
                break;
            }
        }
        assert_eq!(seen(&store, &key).await, before);
    }
    assert_can_continue(&store, &key).await;
}

/// A write is stored even if its ticket, the future with its outcome, is dropped.
pub async fn a_ticket_dropped_at_any_await_cancels_nothing(store: Store) {
    for times in 0..MAX_POLLS {
        let key = key(&format!("ticket {times}"));
        let write = write(&key, Revision::ABSENT, &["1", "2"]);
        let slot = store.reserve().await.expect("a slot is reserved");
        let done = polled(store.append(slot, vec![write]), times).await;
        assert_eq!(settled(&store, &key).await.texts, ["1", "2"]);
        assert_can_continue(&store, &key).await;
        if done.is_some() {
            return;
        }
    }
}

/// A deletion whose future is dropped has deleted either the whole conversation or nothing.
pub async fn a_deletion_dropped_at_any_await_is_done_or_not(store: Store) {
    for times in 0..MAX_POLLS {
        let key = key(&format!("deleted {times}"));
        let before = filled(&store, &key).await;
        let done = polled(store.delete(&key), times).await;
        let after = settled(&store, &key).await;
        let is_gone = after.revision == Revision::ABSENT;
        assert!(done.is_none() || is_gone);
        match is_gone {
            true => assert_eq!((after.texts.len(), after.calls), (0, 0)),
            false => assert_eq!(after, before),
        }
        assert_eq!(store.delete(&key).await.expect("the conversation is deleted"), !is_gone);
        if done.is_some() {
            return;
        }
    }
}

/// If the future of a copy is dropped, the copy is either complete or does not exist.
pub async fn a_fork_dropped_at_any_await_is_done_or_not(store: Store) {
    let from = key("original");
    let original = filled(&store, &from).await;
    for times in 0..MAX_POLLS {
        let to = key(&format!("copy {times}"));
        let done = polled(store.fork_at(&from, None, &to), times).await;
        let after = settled(&store, &to).await;
        let is_made = after.revision != Revision::ABSENT;
        assert!(done.is_none() || is_made);
        if !is_made {
            assert_eq!((after.texts.len(), after.calls), (0, 0));
            store.fork_at(&from, None, &to).await.expect("the conversation is forked");
        }
        let copy = seen(&store, &to).await;
        assert_eq!((copy.texts, copy.calls), (original.texts.clone(), original.calls));
        assert_can_continue(&store, &to).await;
        if done.is_some() {
            return;
        }
    }
}

/// A prune whose future is dropped has deleted either all runs that it must delete or nothing.
pub async fn a_prune_dropped_at_any_await_is_done_or_not(store: Store) {
    for times in 0..MAX_POLLS {
        let key = key(&format!("pruned {times}"));
        let before = filled(&store, &key).await;
        let done = polled(store.prune(&key, Keep::Messages(1)), times).await;
        let after = settled(&store, &key).await;
        let is_pruned = after != before;
        assert!(done.is_none() || is_pruned);
        if is_pruned {
            assert_eq!((after.pruned, after.calls), (1, 0));
            assert_eq!(after.texts, before.texts[1..]);
        }
        let again = store.prune(&key, Keep::Messages(1)).await.expect("the conversation is pruned");
        assert_eq!(again.messages, u64::from(!is_pruned));
        assert_can_continue(&store, &key).await;
        if done.is_some() {
            return;
        }
    }
}

/// If the future of `add_summary` is dropped, either the summary was added, or nothing was changed.
pub async fn an_addition_dropped_at_any_await_is_done_or_not(store: Store) {
    for times in 0..MAX_POLLS {
        let key = key(&format!("summarized {times}"));
        let before = filled(&store, &key).await;
        let first = added(&store, &key, 1, "one").await;
        let second = summary(&store, &key, 2, "one to two").await;
        let done = polled(store.add_summary(&key, &second, 0), times).await;
        assert_eq!(settled(&store, &key).await, before);
        let found = store.history_summaries(&key).await.expect("the summaries are read");
        let is_added = found.len() > 1;
        assert!(done.is_none() || is_added);
        match is_added {
            true => assert_summaries(&store, &key, &[&first, &second]).await,
            false => assert_summaries(&store, &key, &[&first]).await,
        }
        assert_eq!(add(&store, &key, &second, 0).await, AddedSummary::Stored);
        assert_summaries(&store, &key, &[&first, &second]).await;
        assert_can_continue(&store, &key).await;
        if done.is_some() {
            return;
        }
    }
}

/// A rewrite whose future is dropped has made either all of its changes or none.
pub async fn a_rewrite_dropped_at_any_await_is_done_or_not(store: Store) {
    for times in 0..MAX_POLLS {
        let key = key(&format!("rewritten {times}"));
        let before = filled(&store, &key).await;
        let mut rewrite = Rewrite::new(key.clone(), before.revision);
        rewrite.messages.push((2, Message::user("zwei")));
        rewrite.removed_tools.push(position(1, 0));
        let done = polled(store.rewrite(rewrite.clone()), times).await;
        let after = settled(&store, &key).await;
        let is_rewritten = after != before;
        assert!(done.is_none() || is_rewritten);
        if is_rewritten {
            assert_eq!((after.texts[1].as_str(), after.calls), ("zwei", 0));
            assert_ne!(after.revision, before.revision);
        }
        let again = store.rewrite(rewrite).await;
        assert_eq!(again.is_err(), is_rewritten);
        assert_can_continue(&store, &key).await;
        if done.is_some() {
            return;
        }
    }
}

/// If the future of `close` is dropped, the writes that were submitted are stored, and `close` can
/// be called again.
pub async fn a_close_dropped_at_any_await_loses_nothing(store: Store) {
    let key = key("closed");
    let mut at = Revision::ABSENT;
    for times in 0..MAX_POLLS {
        if let Ok(slot) = store.reserve().await {
            let id = tower_chat_core::MessageId { run: RunId::new(), index: 0 };
            let message = tower_chat_core::Message::user("kept").into();
            let write = Write::new(key.clone(), id, at, [message]);
            at = write.result();
            drop(store.append(slot, vec![write]));
        }
        let done = polled(store.close(), times).await;
        assert_eq!(revision(&store, &key).await, at);
        if done.is_some() {
            break;
        }
    }
    store.close().await.expect("the closed store is closed again");
    assert!(store.reserve().await.is_err());
    assert_eq!(texts(&store, &key).await.len() as u64, at.sequence);
}
