//! The rules for the [leases](tower_chat_core::store::Lease) of open runs, and for lists of open
//! runs. An open run is not committed yet. Its lease is the time until which no other attempt, that
//! is another execution of the run, may take over the run.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Message, MessageId,
    store::{
        Journal, LeaseEnd, OpenRun, Revision,
        author::{Staged, Write},
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, acknowledged, commit, discard, key, lease, open_run, refused, revision, staging,
        stored, texts, write,
    },
};

/// The open run of a conversation contains its lease, its start time, and the number of visible
/// messages.
pub async fn an_open_run_knows_its_lease(store: Store) {
    let key = key("leased");
    let mut run = StagedRun::new(&key, stored(&store, write(&key, Revision::ABSENT, &["0"])).await);
    stored(&store, run.text(staging(1), "1")).await;
    let mut expected = OpenRun::new(run.run, lease(1), 1);
    assert_eq!(open_run(&store, &key).await.as_ref(), Some(&expected));
    let mut renewed = staging(1);
    renewed.lease.renewed_at += std::time::Duration::from_millis(1);
    renewed.lease.until = LeaseEnd::NotHeld;
    stored(&store, run.write(renewed.clone(), [])).await;
    expected.lease = renewed.lease;
    assert_eq!(expected.opened_at, lease(1).renewed_at);
    assert_eq!(open_run(&store, &key).await.as_ref(), Some(&expected));
    renewed.lease.until = LeaseEnd::Abandoned;
    stored(&store, run.write(renewed.clone(), [])).await;
    expected.lease = renewed.lease;
    assert_eq!(open_run(&store, &key).await.as_ref(), Some(&expected));
}

/// A later attempt resumes an open run. The store then refuses new writes of the earlier attempt.
/// If the earlier attempt repeats a stored write, the store reports success.
pub async fn a_later_attempt_fences_off_those_before_it(store: Store) {
    let key = key("taken over");
    let mut first =
        StagedRun::new(&key, stored(&store, write(&key, Revision::ABSENT, &["0"])).await);
    let input = first.text(staging(1), "1");
    stored(&store, input.clone()).await;
    let at = first.at;
    stored(&store, first.write(staging(3), [])).await;
    assert_eq!(open_run(&store, &key).await.map(|open| open.lease), Some(lease(3)));
    for staged in [staging(1), staging(2), commit(2), discard(1, 1)] {
        for texts in [&[][..], &["late"]] {
            let messages = texts.iter().map(|text| tower_chat_core::Message::user(*text));
            let late = first.write(staged.clone(), messages);
            assert_eq!(refused(&store, late).await.open_run, Some(first.run));
            first.at = at;
        }
    }
    acknowledged(&store, &input).await;
    assert_eq!(open_run(&store, &key).await.map(|open| open.lease), Some(lease(3)));
    stored(&store, first.text(staging(3), "2")).await;
    stored(&store, first.text(commit(4), "3")).await;
    assert_eq!(texts(&store, &key).await, ["0", "1", "2", "3"]);
}

/// If two processes resume a run with the same attempt number, only one of them gets the lease.
pub async fn of_two_that_take_a_run_over_one_holds_it(store: Store) {
    let key = key("contended");
    let mut run = StagedRun::new(&key, Revision::ABSENT);
    stored(&store, run.text(staging(1), "1")).await;
    let (winner, mut loser) = (staging(2), staging(2));
    loser.lease.holder ^= 1;
    stored(&store, run.write(winner.clone(), [])).await;
    let at = run.at;
    for texts in [&[][..], &["lost"]] {
        let messages = texts.iter().map(|text| tower_chat_core::Message::user(*text));
        let lost = run.write(loser.clone(), messages);
        assert_eq!(refused(&store, lost).await.open_run, Some(run.run));
        run.at = at;
    }
    let open = open_run(&store, &key).await.expect("the open run is read");
    assert_eq!(open.lease, winner.lease);
    stored(&store, run.write(winner, [])).await;
}

/// If two attempts begin with writes that have the same id and expect the same revision, the store
/// stores the first of the two writes and refuses the other one.
pub async fn the_first_write_of_an_attempt_is_its_own(store: Store) {
    for (position, texts) in [&[][..], &["first"]].into_iter().enumerate() {
        for is_new in [true, false] {
            let key = key(&format!("beginning {position} {is_new}"));
            let mut run = StagedRun::new(&key, Revision::ABSENT);
            let mut attempt = 1;
            if !is_new {
                stored(&store, run.text(staging(1), "input")).await;
                attempt = 2;
            }
            let (winner, mut loser) = (staging(attempt), staging(attempt));
            loser.lease.holder ^= 1;
            let at = run.at;
            let index = u32::from(!is_new);
            let beginning = |staged: Staged| {
                let id = MessageId { run: run.run, index };
                let messages = texts.iter().map(|text| Arc::new(Message::user(*text)));
                Write::new(key.clone(), id, at, messages).staged(staged).beginning_attempt()
            };
            let lost = beginning(loser);
            let won = beginning(winner.clone());
            assert_eq!((won.id(), won.expected()), (lost.id(), lost.expected()));
            assert_ne!(won.result(), lost.result(), "each attempt has another incarnation");
            stored(&store, won.clone()).await;
            assert_eq!(refused(&store, lost.clone()).await.open_run, Some(won.run()));
            acknowledged(&store, &won).await;
            assert_eq!(revision(&store, &key).await, won.result());
            let open = open_run(&store, &key).await.expect("the open run is read");
            assert_eq!(open.lease, winner.lease);
            let id = MessageId { run: run.run, index: index + won.messages().len() as u32 };
            let last = [Arc::new(Message::user("last"))];
            let end = Write::new(key.clone(), id, won.result(), last).staged(commit(attempt));
            stored(&store, end).await;
            refused(&store, lost).await;
        }
    }
}

/// Two writes with the same id may each open and commit a run, and expect the same revision. The
/// store stores the first of the two writes and refuses the other one.
pub async fn a_run_in_one_write_is_its_own(store: Store) {
    for is_new in [true, false] {
        for is_fenced_first in [true, false] {
            let key = key(&format!("one write {is_new} {is_fenced_first}"));
            let at = match is_new {
                true => Revision::ABSENT,
                false => stored(&store, write(&key, Revision::ABSENT, &["0"])).await,
            };
            let id = MessageId { run: StagedRun::new(&key, at).run, index: 0 };
            let plain = |texts: &[&str]| {
                let messages = texts.iter().map(|text| Arc::new(Message::user(*text)));
                Write::new(key.clone(), id, at, messages)
            };
            let fenced = |holder, texts: &[&str]| {
                let mut staged = commit(1);
                staged.lease.holder = holder;
                plain(texts).staged(staged).beginning_attempt()
            };
            let (won, lost) = match is_fenced_first {
                true => (fenced(1, &["won"]), [plain(&["lost"]), fenced(2, &["lost", "too"])]),
                false => (plain(&["won"]), [fenced(1, &["lost"]), fenced(2, &["lost", "too"])]),
            };
            stored(&store, won.clone()).await;
            for lost in lost {
                assert_eq!(refused(&store, lost).await.open_run, None);
            }
            acknowledged(&store, &won).await;
            assert_eq!(revision(&store, &key).await, won.result());
            let rest = [Arc::new(Message::user("rest"))];
            let id = MessageId { index: 1, ..id };
            stored(&store, Write::new(key.clone(), id, won.result(), rest)).await;
            let expected = ["0", "won", "rest"];
            assert_eq!(texts(&store, &key).await, expected[usize::from(is_new)..]);
        }
    }
}

/// Several attempts may each open and commit the same run in one write, which may have no messages.
/// If each attempt expects the revision after the previous attempt, the store accepts them all.
/// After each attempt, the store refuses a write that expects the revision before the attempt.
pub async fn attempts_in_one_write_follow_each_other(store: Store) {
    for is_new in [true, false] {
        let key = key(&format!("one write each {is_new}"));
        let mut at = match is_new {
            true => Revision::ABSENT,
            false => stored(&store, write(&key, Revision::ABSENT, &["0"])).await,
        };
        let run = StagedRun::new(&key, at).run;
        let attempts: [(u64, u32, &[&str]); 3] = [(1, 0, &[]), (2, 0, &["1"]), (3, 1, &["2"])];
        for (holder, index, texts) in attempts {
            let write = |texts: &[&str]| {
                let messages = texts.iter().map(|text| Arc::new(Message::user(*text)));
                Write::new(key.clone(), MessageId { run, index }, at, messages)
            };
            let mut staged = commit(1);
            staged.lease.holder = holder;
            let begins = write(texts).staged(staged).beginning_attempt();
            stored(&store, begins.clone()).await;
            acknowledged(&store, &begins).await;
            refused(&store, write(&["lost"])).await;
            at = begins.result();
            assert_eq!(revision(&store, &key).await, at);
            assert_eq!(open_run(&store, &key).await, None);
        }
        let rest = [Arc::new(Message::user("rest"))];
        stored(&store, Write::new(key.clone(), MessageId { run, index: 2 }, at, rest)).await;
        assert_eq!(texts(&store, &key).await, ["0", "1", "2", "rest"][usize::from(is_new)..]);
    }
}

/// After a later attempt has ended the run, a write of an earlier attempt is refused and does not
/// open the run again.
pub async fn a_run_that_was_taken_over_and_ended_stays_ended(store: Store) {
    for end in ["committed", "discarded"] {
        let key = key(end);
        let mut run = StagedRun::new(&key, Revision::ABSENT);
        let input = run.text(staging(1), "1");
        stored(&store, input).await;
        let at = run.at;
        let ends = if end == "committed" { commit(2) } else { discard(2, 0) };
        let end = run.write(ends, []);
        acknowledged(&store, &end).await;
        acknowledged(&store, &end).await;
        for texts in [&[][..], &["late"]] {
            for staged in [staging(1), commit(1)] {
                run.at = at;
                let messages = texts.iter().map(|text| tower_chat_core::Message::user(*text));
                refused(&store, run.write(staged, messages)).await;
            }
        }
        assert_eq!(open_run(&store, &key).await, None);
        assert_eq!(revision(&store, &key).await, end.result());
        stored(&store, write(&key, end.result(), &["next"])).await;
    }
}

/// The open runs of a scope are listed in pages, in the byte order of the conversation ids.
pub async fn open_runs_are_listed_by_scope(store: Store) {
    let ids = ["", "A", "B", "a", "a\u{e9}", "b"];
    for (scope, id) in ids.map(|id| ("scope", id)).into_iter().chain([("scope2", "a"), ("", "z")]) {
        let key = ConversationKey::new(scope, id);
        let mut run = StagedRun::new(&key, Revision::ABSENT);
        stored(&store, run.text(staging(1), id)).await;
    }
    let plain = key("no open run");
    stored(&store, write(&plain, Revision::ABSENT, &["0"])).await;
    let list = async |scope: &str, after: Option<&str>, limit| {
        let listed = store.open_runs(scope, after, limit).await.expect("the list is read");
        let found = listed.into_iter().map(|key| {
            assert_eq!(key.scope(), scope);
            key.id().to_owned()
        });
        found.collect::<Vec<_>>()
    };
    assert_eq!(list("scope", None, 100).await, ["", "A", "B", "a", "a\u{e9}", "b"]);
    assert_eq!(list("scope", None, 2).await, ["", "A"]);
    assert_eq!(list("scope", Some("A"), 2).await, ["B", "a"]);
    assert_eq!(list("scope", Some("a"), 100).await, ["a\u{e9}", "b"]);
    assert_eq!(list("scope", Some(""), 1).await, ["A"]);
    assert!(list("scope", Some("b"), 100).await.is_empty());
    assert!(list("scope", None, 0).await.is_empty());
    assert_eq!(list("scope2", None, 100).await, ["a"]);
    assert_eq!(list("", None, 100).await, ["z"]);
    assert!(list("unknown", None, 100).await.is_empty());
}
