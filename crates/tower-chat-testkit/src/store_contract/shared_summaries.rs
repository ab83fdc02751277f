//! The rules for summaries in a store that several processes share. A summary replaces the first
//! messages of a conversation for the model. A crate calls these functions for a store that needs a
//! special setup.

use std::{collections::HashSet, time::Duration};

use futures_util::future::join_all;
use tower_chat_core::{
    ConversationKey, Message,
    store::{
        AddedSummary, HistoryStore, HistorySummary, Keep, Maintenance, Revision, Rewrite,
        StoreError, Summaries, SummaryInForce,
    },
};

use super::{
    Store,
    fixture::{key, stored, submit, texts, write},
};
use crate::Rng;

/// The number of changes that each task makes.
const CHANGES: usize = 25;

/// The number of messages that the conversation has before the tasks begin.
const BEFORE: u64 = 6;

/// Changes of summaries need no slot (reserved entry) of the queue. The queue of the store must
/// have exactly one slot, which this test reserves.
pub async fn a_summary_waits_for_no_slot(store: Store) {
    let key = key("without a slot");
    let at = stored(&store, write(&key, Revision::ABSENT, &["1", "2"])).await;
    let history = store.load(&key).await.expect("the history is loaded");
    let last = history.message(1).and_then(|message| message.id).expect("the message is visible");
    let summary = HistorySummary::new(1, last, "one");
    let slot = store.reserve().await.expect("a slot is reserved");
    let changes = async {
        let added = store.add_summary(&key, &summary, 0).await.expect("the summary is added");
        assert_eq!(added, AddedSummary::Stored);
        assert!(store.remove_summary(&key, summary.id).await.expect("the summary is removed"));
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), changes).await;
    waited.expect("a change of summaries needs no slot");
    let ticket = store.append(slot, vec![write(&key, at, &["3"])]);
    ticket.await.expect("the write is stored");
}

/// Tasks of two processes append to one conversation, summarize, prune, rewrite and fork it, and
/// remove summaries, all at the same time. No message is lost or doubled, and every summary covers
/// the messages for which it was made. `open` opens the same store each time, as another process
/// does.
pub async fn two_processes_summarize_one_conversation(open: impl AsyncFn() -> Store) {
    let stores = [open().await, open().await];
    let key = key("shared");
    let mut at = Revision::ABSENT;
    for number in 0..BEFORE {
        at = stored(&stores[0], write(&key, at, &[&format!("before {number}")])).await;
    }
    let mut tasks = Vec::new();
    for (process, store) in stores.iter().enumerate() {
        for (number, role) in [
            Role::Append,
            Role::Summarize,
            Role::Summarize,
            Role::Undo,
            Role::Prune,
            Role::Rewrite,
            Role::Fork,
        ]
        .into_iter()
        .enumerate()
        {
            let (store, key) = (store.clone(), key.clone());
            let name = format!("{process} {number}");
            let rng = Rng::of(process as u64, number as u64);
            tasks.push(tokio::spawn(async move { role.play(&store, &key, &name, rng).await }));
        }
    }
    let made = join_all(tasks).await.into_iter();
    let made = made.flat_map(|made| made.expect("the task did not panic"));
    let made: Vec<HistorySummary> = made.collect();
    assert!(!made.is_empty(), "no summary was added");
    for store in &stores {
        check(store, &key, &made).await;
    }
}

#[derive(Clone, Copy)]
enum Role {
    Append,
    Summarize,
    Undo,
    Prune,
    Rewrite,
    Fork,
}

impl Role {
    /// Makes the changes of one task, and returns the summaries that it has added.
    async fn play(
        self,
        store: &Store,
        key: &ConversationKey,
        name: &str,
        mut rng: Rng,
    ) -> Vec<HistorySummary> {
        let mut added = Vec::new();
        for number in 0..CHANGES {
            match self {
                Self::Append => append(store, key, &format!("text {name} {number}")).await,
                Self::Summarize => added.extend(summarize(store, key, &mut rng).await),
                Self::Undo => {
                    let head = store.head(key).await.expect("the head is read");
                    if let Some(summary) = head.summary.filter(|_| rng.one_in(3)) {
                        let removed = store.remove_summary(key, summary.id).await;
                        removed.expect("the removal has an outcome");
                    }
                }
                Self::Prune => {
                    let pruned = store.prune(key, Keep::Messages(5)).await;
                    allow_conflict(pruned.map(drop));
                }
                Self::Rewrite => rewrite(store, key, &mut rng).await,
                Self::Fork => fork(store, key, &format!("copy {name} {number}")).await,
            }
            tokio::task::yield_now().await;
        }
        added
    }
}

/// Checks that a change either succeeded, or was refused because another task was faster.
fn allow_conflict(outcome: Result<(), StoreError>) {
    match outcome {
        Ok(()) | Err(StoreError::Conflict(_)) => {}
        Err(error) => assert!(error.is_retryable(), "{error:?}"),
    }
}

/// Appends a message, and tries again if another task was faster.
async fn append(store: &Store, key: &ConversationKey, text: &str) {
    loop {
        let at = store.head(key).await.expect("the head is read").revision;
        match submit(store, vec![write(key, at, &[text])]).await {
            Ok(_) => return,
            Err(error) => allow_conflict(Err(error.source)),
        }
    }
}

async fn summarize(store: &Store, key: &ConversationKey, rng: &mut Rng) -> Option<HistorySummary> {
    let history = store.load(key).await.expect("the history is loaded");
    let numbered: Vec<_> = history.numbered().collect();
    let (covers_to, message) = numbered[rng.below(numbered.len())];
    let last = message.id.expect("a stored message has an id");
    let summary = HistorySummary::new(covers_to, last, format!("up to {covers_to} as {last}"));
    let added = store.add_summary(key, &summary, history.head.rewrites).await;
    let added = added.expect("the addition has an outcome");
    (added == AddedSummary::Stored).then_some(summary)
}

async fn rewrite(store: &Store, key: &ConversationKey, rng: &mut Rng) {
    let history = store.load(key).await.expect("the history is loaded");
    let numbered: Vec<_> = history.numbered().collect();
    let (sequence, message) = numbered[rng.below(numbered.len())];
    if rng.one_in(2) {
        let mut rewrite = Rewrite::new(key.clone(), history.head.revision);
        rewrite.messages.push((sequence, Message::user(format!("{}!", message.text()))));
        allow_conflict(store.rewrite(rewrite).await.map(drop));
    }
}

/// Copies the conversation, and checks that the copy has no summaries.
async fn fork(store: &Store, key: &ConversationKey, to: &str) {
    let to = super::fixture::key(to);
    match store.fork_at(key, None, &to).await {
        Ok(_) => {
            let copied = store.load(&to).await.expect("the copy is loaded");
            assert_eq!((copied.head.summary, copied.head.rewrites), (None, 0));
            assert!(!copied.messages.is_empty());
        }
        Err(error) => allow_conflict(Err(error)),
    }
}

/// Checks the messages and the summaries after all tasks have ended.
async fn check(store: &Store, key: &ConversationKey, made: &[HistorySummary]) {
    let history = store.load(key).await.expect("the history is loaded");
    let head = store.head(key).await.expect("the head is read");
    assert_eq!(head.revision.sequence, BEFORE + 2 * CHANGES as u64, "a message is lost or doubled");
    let seen = texts(store, key).await;
    let all: HashSet<_> = seen.iter().map(|text| text.trim_end_matches('!')).collect();
    assert_eq!(all.len(), seen.len(), "a message is doubled: {seen:?}");

    let summaries = store.history_summaries(key).await.expect("the summaries are read");
    let in_force = summaries.last().map(|last| SummaryInForce::new(last.id, last.covers_to));
    assert_eq!((head.summary, history.head.summary), (in_force, in_force));
    assert!(summaries.is_sorted_by(|one, next| one.covers_to < next.covers_to));
    for summary in &summaries {
        let expected = made.iter().find(|made| made.id == summary.id);
        let expected = expected.expect("the summary was reported as added");
        assert_eq!((&summary.text, summary.last), (&expected.text, expected.last));
        if let Some(message) = history.message(summary.covers_to) {
            assert_eq!(message.id, Some(summary.last));
        }
    }
    let of_pruned = summaries.iter().filter(|summary| summary.covers_to <= head.pruned).count();
    assert!(of_pruned <= 1, "a prune has left {of_pruned} summaries of pruned messages");
}
