//! The rules for summaries. A summary is a text that the model receives in place of the first
//! messages of a conversation. The summary in force is the last one. A prune deletes the oldest
//! messages, and a rewrite changes stored messages.

use futures_util::future::join;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, Usage,
    store::{
        AddedSummary, Capability, Fork, Head, HistoryStore, HistorySummary, Keep, Maintenance,
        Revision, Rewrite, StoreError, Summaries, SummaryInForce, UsageSum,
    },
};

use super::{
    Store,
    fixture::{StagedRun, at, commit, key, lacks, revision, staging, stored, submit, texts, write},
};

async fn message_id(store: &Store, key: &ConversationKey, sequence: u64) -> MessageId {
    let history = store.load(key).await.expect("the history is loaded");
    history.message(sequence).and_then(|message| message.id).expect("the message is visible")
}

/// Returns a summary of the messages up to a sequence number.
pub(super) async fn summary(
    store: &Store,
    key: &ConversationKey,
    covers_to: u64,
    text: &str,
) -> HistorySummary {
    let last = message_id(store, key, covers_to).await;
    HistorySummary::new(covers_to, last, text).with_time(at(1_750_000_000_123 + covers_to))
}

pub(super) async fn add(
    store: &Store,
    key: &ConversationKey,
    summary: &HistorySummary,
    rewrites: u64,
) -> AddedSummary {
    store.add_summary(key, summary, rewrites).await.expect("the addition has an outcome")
}

/// Adds a summary of the messages up to a sequence number.
pub(super) async fn added(
    store: &Store,
    key: &ConversationKey,
    covers_to: u64,
    text: &str,
) -> HistorySummary {
    let summary = summary(store, key, covers_to, text).await;
    let rewrites = head(store, key).await.rewrites;
    assert_eq!(add(store, key, &summary, rewrites).await, AddedSummary::Stored);
    summary
}

/// Returns the head (everything about a conversation except its messages). Checks that `load`
/// returns the same summary and number of rewrites.
async fn head(store: &Store, key: &ConversationKey) -> Head {
    let head = store.head(key).await.expect("the head is read");
    let loaded = store.load(key).await.expect("the history is loaded").head;
    assert_eq!((loaded.summary, loaded.rewrites), (head.summary, head.rewrites));
    head
}

/// Checks the summaries of a conversation, and that the last one is in the head.
pub(super) async fn assert_summaries(
    store: &Store,
    key: &ConversationKey,
    expected: &[&HistorySummary],
) {
    let found = store.history_summaries(key).await.expect("the summaries are read");
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    let in_force = expected.last().map(|last| SummaryInForce::new(last.id, last.covers_to));
    assert_eq!(head(store, key).await.summary, in_force);
    for summary in expected {
        let one = store.history_summary(key, summary.id).await.expect("the summary is read");
        assert_eq!(one.as_ref(), Some(*summary));
    }
    let absent = store.history_summary(key, 1).await.expect("no summary is read");
    assert_eq!(absent, None);
}

/// Writes one run for each of these groups of texts, and returns the revision.
async fn filled(store: &Store, key: &ConversationKey, runs: &[&[&str]]) -> Revision {
    let mut at = Revision::ABSENT;
    for run in runs {
        at = stored(store, write(key, at, run)).await;
    }
    at
}

async fn pruned(store: &Store, key: &ConversationKey, keep: u64) {
    store.prune(key, Keep::Messages(keep)).await.expect("the conversation is pruned");
}

/// Rewrites one message, and returns the revision.
async fn rewritten(store: &Store, key: &ConversationKey, sequence: u64) -> Revision {
    let mut rewrite = Rewrite::new(key.clone(), head(store, key).await.revision);
    rewrite.messages.push((sequence, Message::user("rewritten")));
    store.rewrite(rewrite).await.expect("the message is rewritten")
}

/// An added summary is returned unchanged, and is in force. Neither the messages nor the revision
/// change, and no other conversation has the summary.
pub async fn an_added_summary_is_in_force(store: Store) {
    let (key, absent) = (key("summarized"), super::fixture::key("never written"));
    let others = [super::fixture::key("other"), ConversationKey::new("other scope", key.id())];
    assert_summaries(&store, &absent, &[]).await;
    let at_4 = filled(&store, &key, &[&["1", "2"], &["3", "4"]]).await;
    for other in &others {
        filled(&store, other, &[&["1", "2"]]).await;
    }
    assert_summaries(&store, &key, &[]).await;
    let usage = UsageSum::of_calls(1, 2).with_tokens(Usage::new(1_000, 50)).with_cost_nanos(7);
    let first = summary(&store, &key, 2, "a 'short' \"text\"\0\n\u{1f9e5}").await;
    let first = first.with_made_by(Some("gpt-5-mini".into())).with_usage(usage);
    assert_eq!(add(&store, &key, &first, 0).await, AddedSummary::Stored);
    assert_summaries(&store, &key, &[&first]).await;
    let second = summary(&store, &key, 4, "").await;
    assert_eq!(add(&store, &key, &second, 0).await, AddedSummary::Stored);
    assert_summaries(&store, &key, &[&first, &second]).await;

    assert_eq!(revision(&store, &key).await, at_4);
    assert_eq!(texts(&store, &key).await, ["1", "2", "3", "4"]);
    stored(&store, write(&key, at_4, &["5"])).await;
    assert_summaries(&store, &key, &[&first, &second]).await;
    for other in &others {
        assert_summaries(&store, other, &[]).await;
    }
    if let Some(directory) = store.directory() {
        let listed = directory.list("scope", None, 9).await.expect("the list is read");
        assert!(!listed.contains(&absent), "an absent conversation was created");
    }
}

/// A summary is refused if its last message is not the visible message at its position.
pub async fn a_summary_of_other_messages_is_refused(store: Store) {
    let key = key("covered");
    let at = filled(&store, &key, &[&["1", "2"], &["3"]]).await;
    let valid = summary(&store, &key, 2, "one to two").await;
    let of = |covers_to, last| HistorySummary::new(covers_to, last, "of other messages");
    let foreign = MessageId { run: RunId::new(), index: 1 };
    let refused = async |summary: &HistorySummary| {
        let outcome = add(&store, &key, summary, 0).await;
        assert_eq!(outcome, AddedSummary::NoSuchMessage, "{summary:?}");
        assert_summaries(&store, &key, &[]).await;
    };
    refused(&of(2, foreign)).await;
    for covers_to in [0, 1, 3, 4, 1 << 53, u64::MAX] {
        refused(&of(covers_to, valid.last)).await;
    }
    let absent = super::fixture::key("absent");
    assert_eq!(add(&store, &absent, &valid, 0).await, AddedSummary::NoSuchMessage);
    assert_eq!(revision(&store, &absent).await, Revision::ABSENT);

    if !lacks(&store, &[Capability::Maintenance]) {
        pruned(&store, &key, 1).await;
        refused(&valid).await;
        assert_ne!(revision(&store, &key).await, at);
    }
    // A new conversation with the same key has other messages.
    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    refused(&valid).await;
    filled(&store, &key, &[&["1", "2"]]).await;
    refused(&valid).await;
}

/// A summary is refused if it covers no more messages than the summary in force.
pub async fn a_summary_covers_more_than_the_one_in_force(store: Store) {
    let key = key("covered twice");
    filled(&store, &key, &[&["1", "2", "3", "4"]]).await;
    let in_force = added(&store, &key, 3, "one to three").await;
    for covers_to in [1, 2, 3] {
        let late = summary(&store, &key, covers_to, "late").await;
        assert_eq!(add(&store, &key, &late, 0).await, AddedSummary::Superseded);
        assert_summaries(&store, &key, &[&in_force]).await;
    }
    let later = added(&store, &key, 4, "one to four").await;
    assert_summaries(&store, &key, &[&in_force, &later]).await;
}

/// The repetition of an addition succeeds and changes nothing, also after a later addition.
pub async fn a_repeated_addition_stores_nothing_twice(store: Store) {
    let key = key("added twice");
    filled(&store, &key, &[&["1", "2", "3"]]).await;
    let first = added(&store, &key, 1, "one").await;
    assert_eq!(add(&store, &key, &first, 0).await, AddedSummary::Stored);
    let second = added(&store, &key, 2, "one to two").await;
    for summary in [&first, &second] {
        assert_eq!(add(&store, &key, summary, 0).await, AddedSummary::Stored);
        assert_summaries(&store, &key, &[&first, &second]).await;
    }
}

/// The summary in force can be removed. The summary before it is then in force.
pub async fn the_summary_in_force_is_removed(store: Store) {
    let key = key("undone");
    let at = filled(&store, &key, &[&["1", "2", "3"]]).await;
    let first = added(&store, &key, 1, "one").await;
    let second = added(&store, &key, 2, "one to two").await;
    let remove =
        async |id| store.remove_summary(&key, id).await.expect("the removal has an outcome");
    assert!(!remove(first.id).await, "a later summary is in force");
    assert!(!remove(first.id ^ second.id).await, "there is no such summary");
    assert_summaries(&store, &key, &[&first, &second]).await;
    assert!(remove(second.id).await);
    assert_summaries(&store, &key, &[&first]).await;
    let third = added(&store, &key, 2, "one to two again").await;
    assert_summaries(&store, &key, &[&first, &third]).await;
    for id in [third.id, first.id] {
        assert!(remove(id).await);
        assert!(!remove(id).await);
    }
    assert_summaries(&store, &key, &[]).await;
    assert_eq!(revision(&store, &key).await, at);
    let absent = super::fixture::key("absent");
    assert!(!store.remove_summary(&absent, first.id).await.expect("there is no conversation"));
}

/// A rewrite of messages is counted, and deletes the summaries that cover one of the messages. A
/// summary of the messages before the rewrite is refused. A rewrite of rows alone is not counted.
pub async fn a_rewrite_deletes_the_summaries_of_its_messages(store: Store) {
    if lacks(&store, &[Capability::Maintenance]) {
        return;
    }
    let key = key("rewritten");
    let at = filled(&store, &key, &[&["1", "2", "3", "4"]]).await;
    let first = added(&store, &key, 1, "one").await;
    let second = added(&store, &key, 2, "one to two").await;
    let third = added(&store, &key, 3, "one to three").await;
    let late = summary(&store, &key, 4, "one to four").await;

    let mut rows = Rewrite::new(key.clone(), at);
    rows.removed_tools.push(super::fixture::position(1, 0));
    store.rewrite(rows).await.expect("the rows are rewritten");
    assert_eq!(head(&store, &key).await.rewrites, 0);
    assert_summaries(&store, &key, &[&first, &second, &third]).await;

    rewritten(&store, &key, 4).await;
    assert_eq!(head(&store, &key).await.rewrites, 1);
    assert_summaries(&store, &key, &[&first, &second, &third]).await;
    assert_eq!(add(&store, &key, &late, 0).await, AddedSummary::Rewritten);
    assert_eq!(add(&store, &key, &third, 0).await, AddedSummary::Stored, "it is stored already");

    let mut rewrite = Rewrite::new(key.clone(), head(&store, &key).await.revision);
    rewrite.messages = vec![(4, Message::user("vier")), (2, Message::user("zwei"))];
    store.rewrite(rewrite).await.expect("two messages are rewritten");
    assert_eq!(head(&store, &key).await.rewrites, 2);
    assert_summaries(&store, &key, &[&first]).await;
    assert_eq!(add(&store, &key, &second, 1).await, AddedSummary::Rewritten);
    assert_eq!(add(&store, &key, &second, 2).await, AddedSummary::Stored);
    assert_summaries(&store, &key, &[&first, &second]).await;

    rewritten(&store, &key, 1).await;
    assert_summaries(&store, &key, &[]).await;
    let mut refused = Rewrite::new(key.clone(), at);
    refused.messages.push((1, Message::user("late")));
    store.rewrite(refused).await.expect_err("the conversation is at another revision");
    assert_eq!(head(&store, &key).await.rewrites, 3);
    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    filled(&store, &key, &[&["1"]]).await;
    assert_eq!(head(&store, &key).await.rewrites, 0);
}

/// A prune deletes the summaries whose messages are all pruned, except for the one in force.
pub async fn a_prune_leaves_the_summary_in_force(store: Store) {
    if lacks(&store, &[Capability::Maintenance]) {
        return;
    }
    let key = key("pruned");
    filled(&store, &key, &[&["1", "2"], &["3", "4"], &["5", "6"], &["7"]]).await;
    let first = added(&store, &key, 1, "one").await;
    let second = added(&store, &key, 3, "one to three").await;
    pruned(&store, &key, 5).await;
    assert_summaries(&store, &key, &[&second]).await;
    pruned(&store, &key, 3).await;
    assert_summaries(&store, &key, &[&second]).await;
    assert_eq!(head(&store, &key).await.pruned, 4);
    assert_eq!(texts(&store, &key).await, ["5", "6", "7"]);
    assert_eq!(add(&store, &key, &first, 0).await, AddedSummary::NoSuchMessage);

    // A summary that covers only pruned messages can be followed by another one, can be removed,
    // and can be in force again.
    let third = added(&store, &key, 5, "one to five").await;
    assert_summaries(&store, &key, &[&second, &third]).await;
    rewritten(&store, &key, 5).await;
    assert_summaries(&store, &key, &[&second]).await;
    let fourth = added(&store, &key, 6, "one to six").await;
    pruned(&store, &key, 1).await;
    assert_summaries(&store, &key, &[&fourth]).await;
    assert_eq!(head(&store, &key).await.rewrites, 1);
    assert!(store.remove_summary(&key, fourth.id).await.expect("it is removed"));
    assert_summaries(&store, &key, &[]).await;
}

/// A deletion of the conversation deletes its summaries.
pub async fn a_deleted_conversation_takes_its_summaries_along(store: Store) {
    let (key, kept) = (key("deleted"), super::fixture::key("kept"));
    for key in [&key, &kept] {
        filled(&store, key, &[&["1", "2"]]).await;
    }
    let gone = added(&store, &key, 2, "one to two").await;
    let left = added(&store, &kept, 2, "one to two, too").await;
    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    assert_summaries(&store, &key, &[]).await;
    assert_eq!(store.history_summary(&key, gone.id).await.expect("no summary is read"), None);
    filled(&store, &key, &[&["1", "2"]]).await;
    assert_summaries(&store, &key, &[]).await;
    assert!(!store.remove_summary(&key, gone.id).await.expect("there is no summary"));
    assert_summaries(&store, &kept, &[&left]).await;
}

/// A copy of a conversation has no summaries.
pub async fn a_fork_has_no_summaries(store: Store) {
    if lacks(&store, &[Capability::Maintenance]) {
        return;
    }
    let (key, copy) = (key("original"), super::fixture::key("copy"));
    filled(&store, &key, &[&["1", "2"], &["3"]]).await;
    rewritten(&store, &key, 3).await;
    let summary = added(&store, &key, 2, "one to two").await;
    let Fork { position, .. } =
        store.fork_at(&key, None, &copy).await.expect("the conversation is forked");
    assert_eq!(position, 3);
    assert_summaries(&store, &copy, &[]).await;
    assert_eq!(head(&store, &copy).await.rewrites, 0);
    assert_summaries(&store, &key, &[&summary]).await;
    let of_copy = added(&store, &copy, 1, "one").await;
    assert_summaries(&store, &copy, &[&of_copy]).await;
    assert_summaries(&store, &key, &[&summary]).await;
}

/// A summary cannot cover staged messages, which are those of a run that is not committed yet. A
/// summary of visible messages can be added while a run is open, and the run continues.
pub async fn staged_messages_are_not_covered(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let key = key("open");
    let at = filled(&store, &key, &[&["1", "2"]]).await;
    let mut run = StagedRun::new(&key, at);
    stored(&store, run.text(staging(1), "3")).await;
    let staged = MessageId { run: run.run, index: 0 };
    let early = HistorySummary::new(3, staged, "one to three");
    assert_eq!(add(&store, &key, &early, 0).await, AddedSummary::NoSuchMessage);
    assert_summaries(&store, &key, &[]).await;
    let first = added(&store, &key, 2, "one to two").await;
    assert_eq!(revision(&store, &key).await, run.at);
    assert!(store.remove_summary(&key, first.id).await.expect("it is removed"));
    let first = added(&store, &key, 1, "one").await;
    stored(&store, run.text(commit(1), "4")).await;
    assert_summaries(&store, &key, &[&first]).await;
    let second = added(&store, &key, 3, "one to three").await;
    assert_eq!(second.last, staged);
    assert_summaries(&store, &key, &[&first, &second]).await;
    assert_eq!(texts(&store, &key).await, ["1", "2", "3", "4"]);
}

/// If writes and summaries of one conversation happen at the same time, neither makes the other
/// fail. A reserved slot (entry of the queue) delays no summary.
pub async fn writes_and_summaries_do_not_disturb_each_other(store: Store) {
    const ROUNDS: u64 = 20;
    let key = key("busy");
    let at = filled(&store, &key, &[&["0"]]).await;
    let slot = store.reserve().await.expect("a slot is reserved");
    let writer = async {
        let mut at = at;
        for number in 1..=ROUNDS {
            at = stored(&store, write(&key, at, &[&number.to_string()])).await;
        }
        at
    };
    let summarizer = async {
        let mut all = Vec::new();
        while all.len() < 10 {
            let seen = store.load(&key).await.expect("the history is loaded");
            let covers_to = seen.head.revision.sequence;
            if all.last().is_some_and(|last: &HistorySummary| last.covers_to >= covers_to) {
                let last = all.pop().expect("there is a summary");
                let removed = store.remove_summary(&key, last.id).await;
                assert!(removed.expect("the removal has an outcome"));
            }
            let text = format!("up to {covers_to}");
            all.push(added(&store, &key, covers_to, &text).await);
            if covers_to > ROUNDS {
                break;
            }
        }
        all
    };
    let (at, all) = join(writer, summarizer).await;
    drop(slot);
    assert_eq!(revision(&store, &key).await, at);
    assert_eq!(texts(&store, &key).await.len() as u64, ROUNDS + 1);
    assert_summaries(&store, &key, &all.iter().collect::<Vec<_>>()).await;
}

/// If several summaries are added at the same time, each is stored or superseded. The one that
/// covers most messages is in force.
pub async fn of_concurrent_summaries_the_longest_is_in_force(store: Store) {
    let key = key("raced for");
    filled(&store, &key, &[&["1", "2", "3", "4", "5", "6", "7", "8"]]).await;
    let mut tasks = Vec::new();
    for number in 0..16 {
        let summary = summary(&store, &key, 1 + number % 8, &format!("text {number}")).await;
        let (store, key) = (store.clone(), key.clone());
        tasks.push(tokio::spawn(async move {
            let outcome = add(&store, &key, &summary, 0).await;
            (summary, outcome)
        }));
    }
    let mut expected = Vec::new();
    for task in tasks {
        match task.await.expect("the task did not panic") {
            (summary, AddedSummary::Stored) => expected.push(summary),
            (_, outcome) => assert_eq!(outcome, AddedSummary::Superseded),
        }
    }
    expected.sort_by_key(|summary| summary.covers_to);
    assert_eq!(expected.last().map(|summary| summary.covers_to), Some(8));
    assert_summaries(&store, &key, &expected.iter().collect::<Vec<_>>()).await;
}

/// A summary takes the writes into account that were submitted before it. A closed store refuses
/// changes of summaries, but its summaries can be read.
pub async fn a_summary_sees_what_was_submitted_before_it(store: Store) {
    let key = key("submitted");
    let first = write(&key, Revision::ABSENT, &["1"]);
    let second = write(&key, first.result(), &["2"]);
    let last = second.id();
    for write in [first, second] {
        drop(store.append(store.reserve().await.expect("a slot is reserved"), vec![write]));
    }
    let summary = HistorySummary::new(2, last, "one to two").with_time(at(5));
    assert_eq!(add(&store, &key, &summary, 0).await, AddedSummary::Stored);
    let at = revision(&store, &key).await;
    submit(&store, vec![write(&key, at, &["3"])]).await.expect("the write is stored");
    let late = super::summaries::summary(&store, &key, 3, "one to three").await;
    store.close().await.expect("the store is closed");
    for refused in [
        store.add_summary(&key, &late, 0).await.map(drop),
        store.remove_summary(&key, summary.id).await.map(drop),
    ] {
        assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    }
    assert_summaries(&store, &key, &[&summary]).await;
}
