//! Tests of interleavings of reads and writes that occur rarely with a real inner store.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        Head, History, Lease, LeaseEnd, Revision, ServiceIdChange,
        author::{Changes, Close, Staged, Write},
    },
};

use crate::{
    cached::{Cached, ReadAt},
    conversations::Conversations,
    in_flight::IDLE,
    weight,
};

fn conversations() -> Arc<Conversations> {
    Arc::new(Conversations::new(1 << 20))
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

fn now(conversations: &Conversations) -> ReadAt {
    ReadAt { tick: conversations.tick(), time: Instant::now() }
}

fn write(expected: Revision, messages: &[&str]) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    let messages = messages.iter().map(|text| Arc::new(Message::user(*text)));
    Write::new(key(), id, expected, messages)
}

fn store(conversations: &Arc<Conversations>, write: &Write) {
    let mut submission = conversations.submit(std::slice::from_ref(write));
    submission.submitted();
    submission.settled(true);
}

fn cached_revision(conversations: &Conversations) -> Option<Revision> {
    Some(conversations.get(&key())?.history()?.head.revision)
}

/// Returns a cache with an empty conversation.
fn with_empty() -> Arc<Conversations> {
    let conversations = conversations();
    conversations.read(&key(), now(&conversations)).record_head(&Head::new(Revision::ABSENT));
    assert_eq!(cached_revision(&conversations), Some(Revision::ABSENT));
    conversations
}

#[test]
fn a_read_that_began_before_a_write_is_not_cached_after_the_write() {
    let conversations = with_empty();
    let early = conversations.read(&key(), now(&conversations));
    let write = write(Revision::ABSENT, &["1"]);
    let mut submission = conversations.submit(std::slice::from_ref(&write));
    let between = conversations.read(&key(), now(&conversations));
    submission.submitted();
    submission.settled(true);
    early.record_history(&History::empty());
    assert_eq!(cached_revision(&conversations), Some(write.result()));
    between.record_history(&History::empty());
    assert_eq!(cached_revision(&conversations), Some(write.result()));
    assert!(conversations.in_flight().is_over());
}

#[test]
fn a_read_that_began_during_a_submission_is_not_cached() {
    let conversations = with_empty();
    let write = write(Revision::ABSENT, &["1"]);
    let mut submission = conversations.submit(std::slice::from_ref(&write));
    conversations.read(&key(), now(&conversations)).record_history(&History::empty());
    submission.submitted();
    assert_eq!(cached_revision(&conversations), None, "the write has no outcome yet");
    submission.settled(true);
    assert_eq!(cached_revision(&conversations), Some(write.result()));
}

#[test]
fn a_read_that_began_after_a_submission_sees_its_writes() {
    let conversations = with_empty();
    let write = write(Revision::ABSENT, &["1"]);
    let mut submission = conversations.submit(std::slice::from_ref(&write));
    submission.submitted();
    conversations.read(&key(), now(&conversations)).record_history(&History::empty());
    assert_eq!(cached_revision(&conversations), None);
    submission.settled(true);
    assert_eq!(
        cached_revision(&conversations),
        Some(Revision::ABSENT),
        "the later read shows that the write was refused"
    );
}

/// The submissions overlap, so that it is unknown in which order the inner store has applied the
/// writes.
#[test]
fn overlapping_writes_that_leave_the_revision_unchanged_empty_the_entry() {
    let conversations = with_empty();
    let first = write(Revision::ABSENT, &["1"]);
    store(&conversations, &first);
    let at = first.result();
    let set = |id: &str| {
        let change = ServiceIdChange::Set(id.into());
        let write = write(at, &[]).with_service_id(change);
        conversations.submit(&[write])
    };
    let (mut one, mut two) = (set("one"), set("two"));
    two.submitted();
    one.submitted();
    one.settled(true);
    two.settled(true);
    assert_eq!(cached_revision(&conversations), None);
    assert!(conversations.in_flight().is_over());
}

#[test]
fn the_result_of_an_earlier_read_does_not_replace_that_of_a_later_read() {
    let conversations = conversations();
    let early = conversations.read(&key(), now(&conversations));
    let late = conversations.read(&key(), now(&conversations));
    let at = write(Revision::ABSENT, &[]).result();
    late.record_head(&Head::new(at));
    early.record_head(&Head::new(Revision::ABSENT));
    assert_eq!(cached_revision(&conversations), Some(at));
}

/// A submission that is dropped early, for example by a panic, does not block later submissions.
#[test]
fn a_dropped_submission_empties_the_entry() {
    let conversations = with_empty();
    drop(conversations.submit(&[write(Revision::ABSENT, &["1"])]));
    assert_eq!(cached_revision(&conversations), None);
    assert!(conversations.in_flight().is_over());
}

#[test]
fn a_submission_to_several_conversations_updates_each_entry() {
    let conversations = conversations();
    let keys = ["a", "b"].map(|id| ConversationKey::new("alice", id));
    let mut writes = Vec::new();
    for key in &keys {
        conversations.read(key, now(&conversations)).record_head(&Head::new(Revision::ABSENT));
        let id = MessageId { run: RunId::new(), index: 0 };
        let message = Arc::new(Message::user("1"));
        writes.push(Write::new(key.clone(), id, Revision::ABSENT, [message]));
    }
    let mut submission = conversations.submit(&writes);
    submission.submitted();
    submission.settled(true);
    for (key, write) in keys.iter().zip(&writes) {
        let revision = conversations.get(key).and_then(|cached: Arc<Cached>| cached.head());
        assert_eq!(revision.unwrap().revision, write.result());
    }
}

/// Idle conversations are removed when their number exceeds the limit.
#[test]
fn the_number_of_idle_conversations_is_bounded() {
    let conversations = conversations();
    let mut under_way = Vec::new();
    for id in 0..10 * IDLE {
        let key = ConversationKey::new("alice", id.to_string());
        let mut change = conversations.change(&key);
        if id % 10 == 0 {
            under_way.push(change);
        } else {
            change.submitted();
            change.settled(true);
        }
        let max = IDLE + 2 * under_way.len();
        assert!((under_way.len()..=max).contains(&conversations.in_flight().len()));
    }
    drop(under_way);
    assert!(conversations.in_flight().is_over());
}

/// moka may have evicted the entry to which the table of operations refers.
#[test]
fn an_evicted_entry_is_not_used() {
    let conversations = Arc::new(Conversations::new(weight::CONVERSATION + 64));
    conversations.read(&key(), now(&conversations)).record_head(&Head::new(Revision::ABSENT));
    let write_one = |expected, texts: &[&str]| {
        let write = write(expected, texts);
        store(&conversations, &write);
        write.result()
    };
    let at = write_one(Revision::ABSENT, &[]);
    assert_eq!(cached_revision(&conversations), Some(at));
    let at = write_one(at, &["larger than the whole cache"]);
    assert_eq!(conversations.size(), (0, 0));
    assert_eq!(cached_revision(&conversations), None);
    write_one(at, &["and more"]);
    assert_eq!(cached_revision(&conversations), None, "the cached state lacks the last write");
}

/// The weights of moka have the type `u32`, so that a larger weight would overflow.
#[test]
fn a_conversation_above_4_gib_is_not_cached() {
    let conversations = Arc::new(Conversations::new(8 << 30));
    // The messages share one text, but the cache adds the size of the text for each message.
    let message = Arc::new(Message::user("x".repeat(64 << 20)));
    let mut history = History::empty();
    history.extend(std::iter::repeat_n(message.clone(), 60));
    conversations.read(&key(), now(&conversations)).record_history(&history);
    assert_eq!(conversations.size().0, 1);
    history.extend(std::iter::repeat_n(message, 10));
    conversations.read(&key(), now(&conversations)).record_history(&history);
    assert_eq!(conversations.size(), (0, 0));
}

/// moka frees an evicted entry later; until then the weak reference is still valid.
#[test]
fn a_conversation_is_cached_again_before_its_evicted_entry_is_freed() {
    let conversations = with_empty();
    store(&conversations, &write(Revision::ABSENT, &["1"]));
    let evicted = conversations.evict(&key());
    assert!(evicted.is_some());
    assert_eq!(cached_revision(&conversations), None);
    conversations.read(&key(), now(&conversations)).record_history(&History::empty());
    assert_eq!(cached_revision(&conversations), Some(Revision::ABSENT));
}

/// The staged messages of an open run stay known only if the read head has the same revision.
#[test]
fn a_commit_extends_the_cached_history_unless_another_process_has_staged_messages() {
    let lease = Lease {
        attempt: 1,
        holder: 7,
        renewed_at: SystemTime::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let staged = |close| Staged { lease, close, service_id: None, partial_text: None };
    let read = ReadAt { tick: 1, time: Instant::now() };
    let first = write(Revision::ABSENT, &["1"]).staged(staged(None));
    let next = |index, before: &Write, text: &str, close| {
        let id = MessageId { run: first.run(), index };
        Write::new(key(), id, before.result(), [Arc::new(Message::assistant(text))])
            .staged(staged(close))
    };
    let of_other = next(1, &first, "2", None);
    for (writes_of_other, texts) in [(vec![], Some(vec!["1", "3"])), (vec![&of_other], None)] {
        let mut cached = Cached::of_history(&History::empty(), read);
        assert!(cached.apply([&first]));
        let mut head = Head::new(Revision::ABSENT);
        for write in [&first].into_iter().chain(writes_of_other.iter().copied()) {
            head.advance(&Changes::of(&head, write));
        }
        let mut cached = cached.with_head(&head, ReadAt { tick: 2, ..read });
        let before = writes_of_other.last().copied().unwrap_or(&first);
        let index = 1 + u32::try_from(writes_of_other.len()).unwrap();
        assert!(cached.apply([&next(index, before, "3", Some(Close::Commit))]));
        let of_history = |history: History| -> Vec<String> {
            history.messages.iter().map(|message| message.text()).collect()
        };
        let found = cached.history().map(of_history);
        let expected = texts.map(|texts| texts.iter().map(|text| text.to_string()).collect());
        assert_eq!(found, expected);
    }
}
