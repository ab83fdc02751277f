//! Tests of the types that stores share: writes, revisions, tickets, and the outbox.

use std::sync::Arc;

use tower_chat_core::{
    BoxError, ConversationKey, Message, MessageId, RunId, ToolCall, ToolResult,
    format::{self, FormatError},
    store::{
        Conflict, Head, History, Revision, ServiceIdChange, StoreError, StoreHandle,
        author::{HistoryMemo, Slot, Ticket, Write},
    },
};

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("alice", id)
}

fn write(key: ConversationKey, expected: Revision, run: RunId, messages: usize) -> Write {
    let messages = (0..messages).map(|number| Arc::new(Message::user(number.to_string())));
    Write::new(key, MessageId { run, index: 0 }, expected, messages)
}

#[test]
fn messages_of_a_write_are_numbered_from_the_id_of_the_write() {
    let run = RunId::new();
    let mut wrong = Message::user("b");
    wrong.id = Some(MessageId { run: RunId::new(), index: 9 });
    let mine = Arc::new(wrong);
    let messages = [Arc::new(Message::user("a")), mine.clone()];
    let write =
        Write::new(key("c"), MessageId { run, index: 7 }, Revision::ABSENT, messages.clone());
    let ids: Vec<_> = write.messages().iter().map(|message| message.id).collect();
    assert_eq!(ids, [7, 8].map(|index| Some(MessageId { run, index })));
    assert_eq!(messages[0].id, None, "the caller's message is not changed");
    assert_eq!(mine.id.map(|id| id.index), Some(9));
    assert_eq!((write.run(), write.id().index), (run, 7));
}

#[test]
fn a_write_shares_messages_that_already_have_the_right_id() {
    let run = RunId::new();
    let first = write(key("c"), Revision::ABSENT, run, 2);
    let again = Write::new(key("c"), first.id(), Revision::ABSENT, first.messages().to_vec());
    assert!(first.messages().iter().zip(again.messages()).all(|(l, r)| Arc::ptr_eq(l, r)));
}

#[test]
fn the_incarnation_of_a_conversation_comes_from_the_id_of_the_run_that_creates_it() {
    let (first, second) = (RunId::new(), RunId::new());
    let created = Revision::ABSENT.after(first, 3);
    assert_eq!(created, Revision { incarnation: first.random_half(), sequence: 3 });
    let later = created.after(second, 2);
    assert_eq!(later, Revision { incarnation: created.incarnation, sequence: 5 });
    assert_eq!(created.after(second, 0), created);
    assert_ne!(Revision::ABSENT.after(first, 0), Revision::ABSENT);
    assert_ne!(Revision::ABSENT.after(second, 3), created);
    let zero = RunId::from_bytes([0; 16]);
    assert_ne!(Revision::ABSENT.after(zero, 1).incarnation, 0, "0 means absent");
}

#[test]
fn a_history_applies_the_messages_and_the_service_id_of_a_write() {
    let run = RunId::new();
    let mut history = History::empty();
    let first = write(key("c"), Revision::ABSENT, run, 2)
        .with_service_id(ServiceIdChange::Set("conv_1".into()));
    history.apply(&first);
    assert_eq!((history.messages.len(), history.head.revision), (2, first.result()));
    assert_eq!(history.head.service_id.as_deref(), Some("conv_1"));
    history.apply(&write(key("c"), first.result(), RunId::new(), 1));
    assert_eq!(history.head.service_id.as_deref(), Some("conv_1"));
    let clear = write(key("c"), history.head.revision, RunId::new(), 0)
        .with_service_id(ServiceIdChange::Clear);
    history.apply(&clear);
    assert_eq!((history.messages.len(), history.head.service_id), (3, None));
}

#[test]
fn the_outbox_stores_writes_in_order_up_to_its_limit() {
    let handle = StoreHandle::with_outbox_limit(5);
    let run = RunId::new();
    let first = write(key("a"), Revision::ABSENT, run, 2);
    let second = write(key("a"), first.result(), RunId::new(), 1);
    let other = write(key("b"), Revision::ABSENT, RunId::new(), 2);
    handle.keep_unsaved(std::slice::from_ref(&first)).expect("room");
    handle.clone().keep_unsaved(&[second.clone(), other]).expect("room");
    let full = handle.keep_unsaved(&[write(key("c"), Revision::ABSENT, RunId::new(), 1)]);
    assert_eq!(full.expect_err("full").limit, 5);
    assert!(handle.unsaved(&key("c")).is_empty());

    let ids = |writes: Vec<Write>| writes.iter().map(Write::id).collect::<Vec<_>>();
    assert_eq!(ids(handle.unsaved(&key("a"))), [first.id(), second.id()]);
    assert_eq!(handle.unsaved_conversations().len(), 2);
    assert_eq!(ids(handle.take_unsaved(&key("a"))), [first.id(), second.id()]);
    assert!(handle.take_unsaved(&key("a")).is_empty());
    assert_eq!(handle.unsaved_conversations(), [key("b")]);

    let too_many = write(key("a"), Revision::ABSENT, run, 4);
    assert!(handle.keep_unsaved(std::slice::from_ref(&too_many)).is_err());
    assert!(handle.keep_unsaved(&[write(key("a"), Revision::ABSENT, run, 3)]).is_ok());
}

#[test]
fn a_write_without_messages_counts_towards_the_outbox_limit() {
    let handle = StoreHandle::with_outbox_limit(1);
    let empty = write(key("a"), Revision::ABSENT, RunId::new(), 0);
    handle.keep_unsaved(std::slice::from_ref(&empty)).expect("room");
    assert!(handle.keep_unsaved(std::slice::from_ref(&empty)).is_err());
    assert_eq!(handle.take_unsaved(&key("a")).len(), 1);
    assert!(handle.keep_unsaved(&[empty]).is_ok());
}

#[tokio::test]
async fn a_ticket_returns_the_outcome_or_an_error_if_its_sender_was_dropped() {
    let revision = Revision { incarnation: 1, sequence: 2 };
    assert_eq!(Ticket::done(Ok(revision)).await.expect("done"), revision);
    let (sender, ticket) = Ticket::channel();
    sender.send(Ok(revision));
    assert_eq!(ticket.await.expect("done"), revision);
    let (sender, ticket) = Ticket::channel();
    drop(sender);
    let error = ticket.await.expect_err("the sender is dropped");
    assert!(matches!(error.source, StoreError::Closed));
    let inner = Ticket::done(Ok(revision));
    let watched = Ticket::watching(async { inner.await.map(|found| found.after(RunId::new(), 1)) });
    assert_eq!(watched.await.expect("done").sequence, 3);
}

#[test]
fn dropping_a_slot_releases_its_permit() {
    let permit = Arc::new(());
    let slot = Slot::guarded(permit.clone()).without_blocking();
    assert!(!slot.may_block() && Slot::unbounded().may_block());
    assert_eq!(Arc::strong_count(&permit), 2);
    drop(slot);
    assert_eq!(Arc::strong_count(&permit), 1);
}

#[test]
fn errors_say_whether_to_try_again_and_what_to_do() {
    let found = Revision { incarnation: 1, sequence: 4 };
    let conflict = Conflict::new(key("c"), Revision::ABSENT, found);
    let conflict = StoreError::from(Box::new(conflict));
    assert_eq!(
        conflict.to_string(),
        "conversation alice/c was changed by another run: expected message 0 to be its last, found 4; load it again"
    );
    assert!(!conflict.is_retryable());
    let busy = StoreError::backend("append", true, "disk is busy");
    assert!(busy.is_retryable());
    let error: BoxError = busy.into();
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("disk is busy"));
}

#[test]
fn clones_of_a_memo_share_its_values_and_find_them_by_type() {
    let memo = HistoryMemo::default();
    let clone = memo.clone();
    memo.set(5_u32);
    assert_eq!((clone.get::<u32>().as_deref(), clone.get::<u64>()), (Some(&5), None));
    clone.set("six");
    assert_eq!(memo.get::<&str>().as_deref(), Some(&"six"));
}

#[test]
fn the_well_formed_prefix_of_a_loaded_history_ends_at_the_first_dangling_call() {
    let call = |id: &str| Message::tool_calls([ToolCall::new(id, "look", "{}")]);
    let result = |id: &str| Message::tool_results([ToolResult::new(id, "found")]);
    let rows = [Message::user("u"), call("1"), result("1"), call("2"), Message::user("again")];
    let head = Head::new(Revision { incarnation: 7, sequence: 5 });
    let read = rows.map(|message| Ok::<_, FormatError>(Arc::new(message)));
    let mut history = History::collect(head, read).unwrap();
    assert_eq!((history.messages.len(), history.well_formed_messages()), (5, 3));
    history.extend([Arc::new(Message::user("on"))]);
    assert_eq!(history.well_formed_messages(), 3, "messages after the damage are not counted");
}

#[test]
fn an_incomplete_round_becomes_well_formed_when_its_last_result_is_appended() {
    let calls = ["1", "2"].map(|id| ToolCall::new(id, "look", "{}"));
    let result = |id: &str| Arc::new(Message::tool_results([ToolResult::new(id, "found")]));
    let rows = [Arc::new(Message::tool_calls(calls)), result("1")];
    let head = Head::new(Revision { incarnation: 7, sequence: 2 });
    let mut history = History::collect(head, rows.map(Ok::<_, FormatError>)).unwrap();
    assert_eq!(history.well_formed_messages(), 0);
    history.extend([result("2")]);
    assert_eq!(history.well_formed_messages(), 3);
}

#[test]
fn a_history_with_an_unreadable_message_fails_with_the_error_of_this_message() {
    let rows = ["{}", "[]"].into_iter().map(|row| format::decode(row).map(Arc::new));
    let head = Head::new(Revision { incarnation: 7, sequence: 2 });
    let error = History::collect(head, rows).unwrap_err();
    assert_eq!(error.to_string(), "not a stored message");
}
