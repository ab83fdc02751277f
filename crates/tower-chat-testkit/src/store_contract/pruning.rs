//! The rules for pruning conversations. A prune deletes the oldest runs of a conversation. An open
//! run is not committed yet. The incarnation is a random number, by which a write from before the
//! prune is recognised.

use std::time::{Duration, SystemTime};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        Capability, HistoryStore, Keep, Maintenance, Pruned, Revision, ServiceIdChange, StoreError,
        author::Write,
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, acknowledged, assert_listed, commit, discard, key, lacks, open_run, refused,
        revision, staged_content, staging, stored, submit, texts, write,
    },
    forks::forked,
};

/// Prunes a conversation, and returns the numbers of deleted runs and messages.
async fn pruned(store: &Store, key: &ConversationKey, keep: Keep) -> (u64, u64) {
    let Pruned { runs, messages, held_back_by, .. } =
        store.prune(key, keep).await.expect("the conversation is pruned");
    assert_eq!(held_back_by, None);
    (runs, messages)
}

/// Returns a write of a run. `index` is the index of its first message in the run.
fn of_run(run: RunId, index: u32, at: Revision, key: &ConversationKey, texts: &[&str]) -> Write {
    let messages = texts.iter().map(|text| Message::user(*text).into());
    Write::new(key.clone(), MessageId { run, index }, at, messages)
}

/// A prune deletes whole runs. The remaining messages have unchanged sequence numbers, and the
/// conversation has a new incarnation. A second prune deletes nothing. The conversation can be
/// continued.
pub async fn the_oldest_runs_are_pruned_whole(store: Store) {
    let key = key("pruned");
    let mut at = Revision::ABSENT;
    for run in [&["a1", "a2"][..], &["b1", "b2", "b3"], &["c1"]] {
        at = stored(&store, write(&key, at, run)).await;
    }
    let before = store.load(&key).await.expect("the history is loaded");
    assert_eq!(pruned(&store, &key, Keep::Messages(6)).await, (0, 0));
    assert_eq!(pruned(&store, &key, Keep::Messages(5)).await, (0, 0), "the first run is whole");
    assert_eq!(revision(&store, &key).await, at, "nothing has changed");
    assert_eq!(pruned(&store, &key, Keep::Messages(2)).await, (1, 2));
    assert_eq!(texts(&store, &key).await, ["b1", "b2", "b3", "c1"]);
    let after = revision(&store, &key).await;
    assert_eq!(after.sequence, at.sequence);
    assert!(![at.incarnation, 0].contains(&after.incarnation));
    let left = store.load(&key).await.expect("the history is loaded");
    assert_eq!(
        (left.head.pruned, left.head.clone().with_pending_approvals(vec![])),
        (2, left.head.clone())
    );
    assert_eq!(left.messages, before.messages.skip(2), "the ids of the messages are unchanged");
    assert_eq!(left.message(3), before.message(3));
    assert_eq!(left.message(2), None);

    assert_eq!(pruned(&store, &key, Keep::Messages(2)).await, (0, 0));
    assert_eq!(revision(&store, &key).await, after);
    let after = stored(&store, write(&key, after, &["d1"])).await;
    assert_eq!(after.sequence, 7);
    assert_eq!(pruned(&store, &key, Keep::Messages(1)).await, (2, 4));
    assert_eq!(texts(&store, &key).await, ["d1"]);
    assert_eq!(store.head(&key).await.expect("the head is read").pruned, 6);
    assert_listed(&store, "scope", std::slice::from_ref(&key)).await;
    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    stored(&store, write(&key, Revision::ABSENT, &["new"])).await;
    assert_eq!(store.head(&key).await.expect("the head is read").pruned, 0);
    assert_eq!(texts(&store, &key).await, ["new"]);
}

/// A prune never deletes the newest run. A prune of a conversation that is empty or does not exist
/// creates nothing.
pub async fn the_last_run_is_never_pruned(store: Store) {
    let (absent, empty, one) = (key("absent"), key("empty"), key("one run"));
    let none =
        write(&empty, Revision::ABSENT, &[]).with_service_id(ServiceIdChange::Set("conv_1".into()));
    let at_empty = stored(&store, none).await;
    let at_one = stored(&store, write(&one, Revision::ABSENT, &["1", "2"])).await;
    for keep in [Keep::Messages(0), Keep::Messages(1), Keep::Since(far())] {
        for key in [&absent, &empty, &one] {
            assert_eq!(pruned(&store, key, keep).await, (0, 0));
        }
    }
    for (key, at) in [(&absent, Revision::ABSENT), (&empty, at_empty), (&one, at_one)] {
        assert_eq!(revision(&store, key).await, at);
    }
    assert_eq!(texts(&store, &one).await, ["1", "2"]);
    assert_listed(&store, "scope", &[empty, one]).await;
}

fn far() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000)
}

/// A prune by time compares the times in the run ids with the limit. The prune deletes the runs
/// from the beginning of the conversation up to the first run that is not older than the limit.
/// Later runs remain, even if the times in their ids are older.
pub async fn runs_are_pruned_by_the_time_at_which_they_were_made(store: Store) {
    let key = key("by time");
    let made_at = |second: u64| {
        let mut bytes = RunId::new().to_bytes();
        bytes[..6].copy_from_slice(&(second * 1000).to_be_bytes()[2..]);
        RunId::from_bytes(bytes)
    };
    let mut at = Revision::ABSENT;
    for second in [10, 20, 40, 30, 50] {
        at = stored(&store, of_run(made_at(second), 0, at, &key, &[&second.to_string()])).await;
    }
    let since = |second| Keep::Since(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
    assert_eq!(pruned(&store, &key, since(10)).await, (0, 0));
    assert_eq!(pruned(&store, &key, since(11)).await, (1, 1));
    assert_eq!(pruned(&store, &key, since(35)).await, (1, 1));
    assert_eq!(
        texts(&store, &key).await,
        ["40", "30", "50"],
        "run 30 remains, because the newer run 40 precedes it"
    );
    assert_eq!(pruned(&store, &key, since(60)).await, (2, 2));
    assert_eq!(texts(&store, &key).await, ["50"]);
}

/// If a run has written both before and after another run, a prune deletes either both runs or
/// neither of them.
pub async fn a_run_that_was_continued_is_pruned_whole(store: Store) {
    let key = key("gone on with");
    let run = RunId::new();
    let at = stored(&store, of_run(run, 0, Revision::ABSENT, &key, &["a1"])).await;
    let at = stored(&store, write(&key, at, &["b1"])).await;
    let at = stored(&store, of_run(run, 1, at, &key, &["a2"])).await;
    let at = stored(&store, write(&key, at, &["c1"])).await;
    assert_eq!(pruned(&store, &key, Keep::Messages(2)).await, (0, 0));
    assert_eq!(revision(&store, &key).await, at);
    assert_eq!(pruned(&store, &key, Keep::Messages(1)).await, (2, 3));
    assert_eq!(texts(&store, &key).await, ["c1"]);
}

/// A write that expects a revision from before the prune gets a conflict, even if the write was
/// stored before the prune.
pub async fn a_revision_from_before_a_prune_conflicts(store: Store) {
    let key = key("read before");
    let first = write(&key, Revision::ABSENT, &["1"]);
    let at = stored(&store, first.clone()).await;
    let second = write(&key, at, &["2"]);
    let at = stored(&store, second.clone()).await;
    acknowledged(&store, &second).await;
    assert_eq!(pruned(&store, &key, Keep::Messages(1)).await, (1, 1));
    let now = revision(&store, &key).await;
    for late in [write(&key, at, &["3"]), first, second, write(&key, at, &[])] {
        assert_eq!(refused(&store, late).await.found, now);
    }
    assert_eq!(texts(&store, &key).await, ["2"]);
}

/// A prune fails and deletes nothing in three cases: the conversation has an open run, this process
/// is executing a run of the conversation, or this process has unsaved writes of a run.
pub async fn a_run_that_is_open_or_under_way_is_in_the_way(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let key = key("under way");
    let at = stored(&store, write(&key, Revision::ABSENT, &["1"])).await;
    let at = stored(&store, write(&key, at, &["2"])).await;
    let in_the_way = async || match store.prune(&key, Keep::Messages(1)).await {
        Err(StoreError::UnderWay { key: found, run }) => {
            assert_eq!((found, texts(&store, &key).await.len()), (key.clone(), 2));
            run
        }
        other => panic!("expected an open run that prevents pruning, not {other:?}"),
    };
    let run = RunId::new();
    let under_way = store.handle().begin_run(&key, run, 0).await.expect("the writer's turn begins");
    assert_eq!(in_the_way().await, run);
    drop(under_way);
    let unsaved = write(&key, at, &["unsaved"]);
    store.handle().keep_unsaved(std::slice::from_ref(&unsaved)).expect("the queue has room");
    assert_eq!(in_the_way().await, unsaved.run());
    assert_eq!(store.handle().take_unsaved(&key).len(), 1);
    let mut open = StagedRun::new(&key, at);
    stored(&store, open.text(staging(1), "staged")).await;
    assert_eq!(in_the_way().await, open.run);
    assert_eq!(staged_content(&store, &key).await.messages.len(), 1);
    stored(&store, open.write(commit(1), [])).await;
    assert_eq!(pruned(&store, &key, Keep::Messages(1)).await, (2, 2));
    assert_eq!(texts(&store, &key).await, ["staged"]);
}

/// After a prune, runs can be staged, committed and discarded.
pub async fn a_pruned_conversation_can_be_staged_to(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    let key = key("staged to");
    let at = stored(&store, write(&key, Revision::ABSENT, &["1", "2"])).await;
    stored(&store, write(&key, at, &["3"])).await;
    assert_eq!(pruned(&store, &key, Keep::Messages(1)).await, (1, 2));
    let mut run = StagedRun::new(&key, revision(&store, &key).await);
    stored(&store, run.text(staging(1), "4")).await;
    assert_eq!(open_run(&store, &key).await.map(|open| open.visible), Some(3));
    assert_eq!(texts(&store, &key).await, ["3"]);
    stored(&store, run.write(discard(1, 3), [])).await;
    assert_eq!(texts(&store, &key).await, ["3"]);
    let mut run = StagedRun::new(&key, revision(&store, &key).await);
    stored(&store, run.text(staging(1), "5")).await;
    stored(&store, run.text(commit(1), "6")).await;
    assert_eq!(texts(&store, &key).await, ["3", "5", "6"]);
    assert_eq!(revision(&store, &key).await.sequence, 5);
}

/// A prune changes neither a conversation with the same id in another scope nor other conversations
/// in the same scope.
pub async fn a_prune_reaches_one_conversation_alone(store: Store) {
    let pruned_key = key("a");
    let others = [
        key("a "),
        key("A"),
        key(""),
        ConversationKey::new("scop", "ea"),
        ConversationKey::new("", "a"),
    ];
    for key in others.iter().chain([&pruned_key]) {
        let at = stored(&store, write(key, Revision::ABSENT, &["1"])).await;
        stored(&store, write(key, at, &["2"])).await;
    }
    assert_eq!(pruned(&store, &pruned_key, Keep::Messages(1)).await, (1, 1));
    assert_eq!(texts(&store, &pruned_key).await, ["2"]);
    for key in &others {
        assert_eq!(texts(&store, key).await, ["1", "2"], "{key}");
    }
}

/// A copy of a pruned conversation contains the remaining messages.
pub async fn a_pruned_conversation_is_copied_as_it_is_left(store: Store) {
    let (from, to) = (key("pruned"), key("copy"));
    let at = stored(&store, write(&from, Revision::ABSENT, &["1", "2"])).await;
    stored(&store, write(&from, at, &["3", "4"])).await;
    assert_eq!(pruned(&store, &from, Keep::Messages(1)).await, (1, 2));
    let copied = forked(&store, &from, &to).await;
    assert_eq!(revision(&store, &to).await, copied);
    let copied = stored(&store, write(&to, copied, &["5"])).await;
    assert_eq!(texts(&store, &to).await, ["3", "4", "5"]);
    assert_eq!(texts(&store, &from).await, ["3", "4"]);
    assert_eq!(pruned(&store, &to, Keep::Messages(1)).await, (1, 2));
    assert_eq!(
        (texts(&store, &to).await, revision(&store, &to).await.sequence),
        (vec!["5".to_owned()], copied.sequence)
    );
}

/// While a run is being deleted, a reader sees either all messages of the run or none of them.
pub async fn readers_see_a_prune_at_one_moment(store: Store) {
    const RUNS: usize = 20;
    const MESSAGES: usize = 10;
    let key = key("read meanwhile");
    let mut at = Revision::ABSENT;
    for _ in 0..RUNS {
        at = stored(&store, write(&key, at, &["x"; MESSAGES])).await;
    }
    let readers = (0..3).map(|_| {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move {
            let mut left = RUNS * MESSAGES;
            while left > MESSAGES {
                let seen = texts(&store, &key).await.len();
                assert_eq!(seen % MESSAGES, 0, "a reader saw only a part of a run");
                assert!(seen <= left, "a reader saw a deleted run again");
                left = seen;
                tokio::task::yield_now().await;
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    for left in (1..RUNS).rev() {
        let keep = Keep::Messages((left * MESSAGES) as u64);
        assert_eq!(pruned(&store, &key, keep).await, (1, MESSAGES as u64));
        tokio::task::yield_now().await;
    }
    for reader in futures_util::future::join_all(readers).await {
        reader.expect("the reader sees whole runs");
    }
}

/// A prune takes the writes into account that were submitted before it. A closed store refuses to
/// prune.
pub async fn a_prune_sees_what_was_submitted_before_it(store: Store) {
    let key = key("submitted");
    let first = write(&key, Revision::ABSENT, &["1"]);
    let second = write(&key, first.result(), &["2"]);
    for write in [first, second] {
        drop(store.append(store.reserve().await.expect("a slot is reserved"), vec![write]));
    }
    assert_eq!(pruned(&store, &key, Keep::Messages(1)).await, (1, 1));
    let at = revision(&store, &key).await;
    submit(&store, vec![write(&key, at, &["3"])]).await.expect("the write is stored");
    store.close().await.expect("the store is closed");
    let closed = store.prune(&key, Keep::Messages(1)).await;
    assert!(matches!(closed, Err(StoreError::Closed)), "{closed:?}");
    assert_eq!(texts(&store, &key).await, ["2", "3"]);
}
