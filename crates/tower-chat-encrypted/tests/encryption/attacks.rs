//! Tests of attacks by a writer to the inner store who has no key.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId, ToolResult, ToolStatus,
    store::{
        HistoryStore, InvocationQuery, Journal, Keep, Maintenance, Revision, SequencePosition,
        ServiceIdChange, ToolCallQueries,
        author::{RecordedResult, ToolRecord, Write},
    },
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError};

use crate::common::{
    Store, append, encryption_error, forge, key, keys, messages, row, rows, sealed, staged, write,
};

fn empty_store() -> Store {
    EncryptedStore::new(MemoryStore::new(), keys())
}

/// Creates a store with three runs of one message each.
async fn three_runs() -> Store {
    let store = empty_store();
    let mut at = Revision::ABSENT;
    for text in ["first run", "second run", "third run"] {
        at = append(&store, write(&key(), at, [Message::user(text)])).await;
    }
    store
}

async fn texts(store: &Store) -> Vec<String> {
    store.load(&key()).await.unwrap().messages.iter().map(|message| message.text()).collect()
}

async fn refused(store: &Store) -> String {
    let error = store.load(&key()).await.unwrap_err();
    assert!(!error.is_retryable());
    encryption_error(&error).to_string()
}

#[tokio::test]
async fn a_conversation_whose_first_messages_were_removed_without_the_key_is_refused() {
    let store = three_runs().await;
    store.inner().prune(&key(), Keep::Messages(2)).await.unwrap();
    for store in [store.clone(), EncryptedStore::new(store.inner().clone(), keys())] {
        let load = store.load(&key()).await.unwrap_err();
        let head = store.head(&key()).await.unwrap_err();
        for error in [load, head] {
            let error = encryption_error(&error);
            let cut = matches!(error, EncryptionError::CutOff { missing: 1, pruned: 0, .. });
            assert!(cut, "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_conversation_pruned_with_the_key_opens_until_more_is_removed_without_the_key() {
    let store = three_runs().await;
    let pruned = store.prune(&key(), Keep::Messages(2)).await.unwrap();
    assert_eq!(pruned.messages, 1);
    assert_eq!(texts(&store).await, ["second run", "third run"]);
    let other = EncryptedStore::new(store.inner().clone(), keys());
    assert_eq!(texts(&other).await, ["second run", "third run"]);
    let at = other.head(&key()).await.unwrap().revision;
    append(&other, write(&key(), at, [Message::user("fourth run")])).await;
    store.inner().prune(&key(), Keep::Messages(1)).await.unwrap();
    assert!(refused(&other).await.contains("messages up to 3"), "{}", refused(&other).await);
    assert!(
        other.prune(&key(), Keep::Messages(1)).await.is_err(),
        "a later prune does not hide the missing messages"
    );
}

/// Replaces the row of a call with a forged row, which `change` modifies. Returns the number of
/// calls that a query then returns, and the positions of the calls that it reports as unreadable.
async fn forged_rows(change: impl FnOnce(&mut ToolRecord)) -> (usize, Vec<(u64, u32)>) {
    let store = empty_store();
    append(&store, write(&key(), Revision::ABSENT, messages()).with_tools(rows())).await;
    let query = InvocationQuery::of(&key());
    assert_eq!(store.invocations(&query).await.unwrap().found.len(), 3);
    let inside = store.inner().invocations(&query).await.unwrap().found.remove(0).1;
    let mut forged = row(2, 0, inside.status);
    forged.result = RecordedResult::InMessage(SequencePosition { sequence: 3, index: 0 });
    forged.error = inside.error;
    change(&mut forged);
    let at = store.head(&key()).await.unwrap().revision;
    append(store.inner(), write(&key(), at, []).with_tools(vec![forged])).await;
    let answer = store.invocations(&query).await.unwrap();
    let unreadable = answer.unreadable.iter().map(|it| (it.sequence, it.index)).collect();
    (answer.found.len(), unreadable)
}

#[tokio::test]
async fn a_changed_row_of_the_record_does_not_open() {
    assert_eq!(forged_rows(|_| ()).await, (3, Vec::new()), "an unchanged row still opens");
    let changes: [fn(&mut ToolRecord); 8] = [
        // The result belongs to another call.
        |row| row.result = RecordedResult::InMessage(SequencePosition { sequence: 3, index: 1 }),
        |row| row.result = RecordedResult::None,
        |row| row.result = RecordedResult::Apart(Box::new(ToolResult::new("call_1", "forged"))),
        |row| row.status = ToolStatus::PendingApproval,
        |row| row.call_id = "call_2".to_owned(),
        |row| row.name = "pay".to_owned(),
        |row| row.started_at = Some(std::time::SystemTime::UNIX_EPOCH),
        |row| row.error = None,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(forged_rows(change).await, (2, vec![(2, 0)]), "change {number}");
    }
}

#[tokio::test]
async fn messages_of_two_incarnations_of_a_conversation_do_not_open_together() {
    let store = empty_store();
    let talk = |life: &str| [1, 2].map(|number| Message::user(format!("{life} {number}")));
    append(&store, write(&key(), Revision::ABSENT, talk("first life"))).await;
    let (first, first_head) = sealed(&store, &key()).await;
    assert!(store.delete(&key()).await.unwrap());
    append(&store, write(&key(), Revision::ABSENT, talk("second life"))).await;
    let (second, second_head) = sealed(&store, &key()).await;
    assert_eq!(texts(&store).await, ["second life 1", "second life 2"]);
    let mixed = || vec![first[0].clone(), second[1].clone()];
    for head in [first_head, second_head, None] {
        let forged = forge(&key(), mixed(), head, Vec::new()).await;
        let error = refused(&forged).await;
        assert!(
            error.contains("another incarnation") || error.contains("head was removed"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_message_whose_run_id_was_changed_is_refused() {
    let store = three_runs().await;
    let (mut messages, head) = sealed(&store, &key()).await;
    messages[1].id = Some(MessageId { run: RunId::new(), index: 0 });
    let forged = forge(&key(), messages, head, Vec::new()).await;
    assert!(refused(&forged).await.contains("another id"));
}

#[tokio::test]
async fn staged_messages_whose_run_id_was_changed_are_refused() {
    let store = three_runs().await;
    let at = store.head(&key()).await.unwrap().revision;
    let open = write(&key(), at, [Message::user("staged")]).staged(staged("cut off"));
    append(&store, open).await;
    assert_eq!(store.open_run(&key()).await.unwrap().unwrap().messages.len(), 1);
    let content = store.inner().open_run(&key()).await.unwrap().unwrap();
    let head = store.inner().head(&key()).await.unwrap().service_id;
    let forged = three_runs().await;
    let (visible, _) = sealed(&store, &key()).await;
    drop(forged);
    let forged = forge(&key(), visible, head, Vec::new()).await;
    let at = forged.inner().head(&key()).await.unwrap().revision;
    let other = MessageId { run: RunId::new(), index: 0 };
    let mut stage = staged("");
    stage.service_id = content.open.service_id.clone();
    stage.partial_text = None;
    let write = Write::new(key(), other, at, content.messages.clone()).staged(stage);
    append(forged.inner(), write).await;
    let error = forged.open_run(&key()).await.unwrap_err();
    assert!(encryption_error(&error).to_string().contains("another id"), "{error:?}");
}

#[tokio::test]
async fn a_service_id_that_was_replaced_or_removed_without_the_key_is_refused() {
    let store = empty_store();
    let set = |id: &str| ServiceIdChange::Set(id.into());
    for id in ["support", "other"] {
        let key = ConversationKey::new("alice", id);
        let first = write(&key, Revision::ABSENT, [Message::user(id)]);
        append(&store, first.with_service_id(set(&format!("kept {id}")))).await;
        let head = store.head(&key).await.unwrap();
        assert_eq!(head.service_id.as_deref(), Some(&*format!("kept {id}")));
        let inside = store.inner().head(&key).await.unwrap().service_id.unwrap();
        assert!(!inside.contains("kept"), "{inside}");
    }
    let other = store.inner().head(&ConversationKey::new("alice", "other")).await.unwrap();
    let at = store.head(&key()).await.unwrap().revision;
    for forged in [other.service_id.unwrap(), Arc::from("in clear")] {
        append(store.inner(), write(&key(), at, []).with_service_id(set(&forged))).await;
        refused(&store).await;
    }
    append(store.inner(), write(&key(), at, []).with_service_id(ServiceIdChange::Clear)).await;
    refused(&store).await;
    let strict = EncryptedStore::new(store.inner().clone(), keys()).without_former_values();
    let error = strict.head(&key()).await.unwrap_err();
    assert!(matches!(encryption_error(&error), EncryptionError::FormerValues { .. }), "{error:?}");
}

#[tokio::test]
async fn a_write_without_a_read_head_fails_and_succeeds_after_the_head_is_read() {
    let store = three_runs().await;
    let at = store.head(&key()).await.unwrap().revision;
    let other = EncryptedStore::new(store.inner().clone(), keys());
    let write = write(&key(), at, [Message::user("fourth run")]);
    let slot = other.reserve().await.unwrap();
    let error = other.append(slot, vec![write.clone()]).await.unwrap_err();
    assert!(error.source.is_retryable());
    assert!(matches!(encryption_error(&error.source), EncryptionError::HeadNotRead { .. }));
    other.head(&key()).await.unwrap();
    append(&other, write).await;
    assert_eq!(texts(&store).await.len(), 4);
}
