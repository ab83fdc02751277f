//! Orders of events that a store inside brings about only now and then.

use std::{sync::Arc, time::Instant};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{Head, History, Revision, ServiceIdChange, Write},
};

use crate::{
    cached::{Cached, ReadAt},
    conversations::Conversations,
    traffic::AT_REST,
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

fn kept(conversations: &Conversations) -> Option<Revision> {
    Some(conversations.get(&key())?.history()?.head.revision)
}

/// A conversation that is known to be empty.
fn with_empty() -> Arc<Conversations> {
    let conversations = conversations();
    conversations.read(&key(), now(&conversations)).saw_head(&Head::new(Revision::ABSENT));
    assert_eq!(kept(&conversations), Some(Revision::ABSENT));
    conversations
}

#[test]
fn what_was_read_before_a_write_is_not_kept_after_it() {
    let conversations = with_empty();
    let early = conversations.read(&key(), now(&conversations));
    let write = write(Revision::ABSENT, &["1"]);
    let mut submission = conversations.submit(std::slice::from_ref(&write));
    let between = conversations.read(&key(), now(&conversations));
    submission.submitted();
    submission.settled(true);
    early.saw_history(&History::empty());
    assert_eq!(kept(&conversations), Some(write.result()));
    between.saw_history(&History::empty());
    assert_eq!(kept(&conversations), Some(write.result()));
    assert!(conversations.traffic().is_over());
}

#[test]
fn what_was_read_while_a_write_is_submitted_does_not_stand_for_it() {
    let conversations = with_empty();
    let write = write(Revision::ABSENT, &["1"]);
    let mut submission = conversations.submit(std::slice::from_ref(&write));
    conversations.read(&key(), now(&conversations)).saw_history(&History::empty());
    submission.submitted();
    assert_eq!(kept(&conversations), None, "nothing is certain yet");
    submission.settled(true);
    assert_eq!(kept(&conversations), Some(write.result()));
}

#[test]
fn what_was_read_after_a_write_was_submitted_is_what_it_left() {
    let conversations = with_empty();
    let write = write(Revision::ABSENT, &["1"]);
    let mut submission = conversations.submit(std::slice::from_ref(&write));
    submission.submitted();
    conversations.read(&key(), now(&conversations)).saw_history(&History::empty());
    assert_eq!(kept(&conversations), None);
    submission.settled(true);
    assert_eq!(kept(&conversations), Some(Revision::ABSENT), "it was refused, and read so");
}

/// Nobody can tell in which order the store inside took them.
#[test]
fn writes_that_leave_the_revision_as_it_is_and_overlap_leave_nothing_known() {
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
    assert_eq!(kept(&conversations), None);
    assert!(conversations.traffic().is_over());
}

#[test]
fn a_reading_that_began_earlier_does_not_replace_a_later_one() {
    let conversations = conversations();
    let early = conversations.read(&key(), now(&conversations));
    let late = conversations.read(&key(), now(&conversations));
    let at = write(Revision::ABSENT, &[]).result();
    late.saw_head(&Head::new(at));
    early.saw_head(&Head::new(Revision::ABSENT));
    assert_eq!(kept(&conversations), Some(at));
}

/// A submission that is dropped half-way, as by a panic, holds nobody up for ever.
#[test]
fn a_submission_that_was_never_made_leaves_nothing_known() {
    let conversations = with_empty();
    drop(conversations.submit(&[write(Revision::ABSENT, &["1"])]));
    assert_eq!(kept(&conversations), None);
    assert!(conversations.traffic().is_over());
}

#[test]
fn writes_to_several_conversations_are_known_to_each() {
    let conversations = conversations();
    let keys = ["a", "b"].map(|id| ConversationKey::new("alice", id));
    let mut writes = Vec::new();
    for key in &keys {
        conversations.read(key, now(&conversations)).saw_head(&Head::new(Revision::ABSENT));
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

/// Those that were used lately stay, to be found again; all others go.
#[test]
fn conversations_at_rest_are_not_remembered_without_end() {
    let conversations = conversations();
    let mut under_way = Vec::new();
    for id in 0..10 * AT_REST {
        let key = ConversationKey::new("alice", id.to_string());
        let mut change = conversations.change(&key);
        if id % 10 == 0 {
            under_way.push(change);
        } else {
            change.submitted();
            change.settled(true);
        }
        let most = AT_REST + 2 * under_way.len();
        assert!((under_way.len()..=most).contains(&conversations.traffic().len()));
    }
    drop(under_way);
    assert!(conversations.traffic().is_over());
}

/// The cache may have dropped it to make room.
#[test]
fn a_place_that_is_not_in_the_cache_any_more_is_not_used() {
    let conversations = Arc::new(Conversations::new(weight::CONVERSATION + 64));
    conversations.read(&key(), now(&conversations)).saw_head(&Head::new(Revision::ABSENT));
    let write_one = |expected, texts: &[&str]| {
        let write = write(expected, texts);
        store(&conversations, &write);
        write.result()
    };
    let at = write_one(Revision::ABSENT, &[]);
    assert_eq!(kept(&conversations), Some(at));
    let at = write_one(at, &["larger than the whole cache"]);
    assert_eq!(conversations.size(), (0, 0));
    assert_eq!(kept(&conversations), None);
    write_one(at, &["and more"]);
    assert_eq!(kept(&conversations), None, "what is known is not what was written last");
}

/// The cache cannot count so far, and would take it for smaller than it is.
#[test]
fn what_is_larger_than_4_gib_is_not_kept() {
    let conversations = Arc::new(Conversations::new(8 << 30));
    // One text, which is counted again for each message.
    let message = Arc::new(Message::user("x".repeat(64 << 20)));
    let mut history = History::empty();
    history.extend(std::iter::repeat_n(message.clone(), 60));
    conversations.read(&key(), now(&conversations)).saw_history(&history);
    assert_eq!(conversations.size().0, 1);
    history.extend(std::iter::repeat_n(message, 10));
    conversations.read(&key(), now(&conversations)).saw_history(&history);
    assert_eq!(conversations.size(), (0, 0));
}

/// The cache frees what it drops some time later; until then the place looks as if it were in use.
#[test]
fn what_is_read_again_is_kept_although_its_old_place_is_not_gone_yet() {
    let conversations = with_empty();
    store(&conversations, &write(Revision::ABSENT, &["1"]));
    let old_place = conversations.evict(&key());
    assert!(old_place.is_some());
    assert_eq!(kept(&conversations), None);
    conversations.read(&key(), now(&conversations)).saw_history(&History::empty());
    assert_eq!(kept(&conversations), Some(Revision::ABSENT));
}
