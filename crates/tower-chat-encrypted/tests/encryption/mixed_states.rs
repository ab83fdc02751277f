//! Tests that a writer of the inner store without a key cannot mix two states of a conversation
//! message by message.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId, ToolCall,
    store::{
        Directory, HistoryStore, Journal, Lease, LeaseEnd, Maintenance, Revision, Rewrite,
        SequencePosition,
        author::{Claim, Close, Staged, Write},
    },
};
use tower_chat_encrypted::EncryptedStore;

use crate::common::{Store, append, encryption_error, forge, key, keys, sealed, write};

fn empty_store() -> Store {
    EncryptedStore::new(MemoryStore::new(), keys()).without_former_values()
}

fn of_run(run: RunId, index: u32, expected: Revision, text: &str) -> Write {
    let id = MessageId { run, index };
    Write::new(key(), id, expected, [Arc::new(Message::user(text))])
}

fn staged(attempt: u32, close: Option<Close>) -> Staged {
    let lease =
        Lease { attempt, holder: 7, renewed_at: SystemTime::UNIX_EPOCH, until: LeaseEnd::NotHeld };
    Staged { lease, close, service_id: None, partial_text: None }
}

/// Reads a forged conversation in another process, which refuses former values, and returns the
/// texts.
async fn texts(store: &Store) -> Result<Vec<String>, String> {
    let other = EncryptedStore::new(store.inner().clone(), keys()).without_former_values();
    let loaded = other.load(&key()).await;
    let page = other.messages_before(&key(), None, 100).await;
    let rows = other.rows(&key()).await.unwrap();
    let all_rows = rows.is_none_or(|rows| rows.messages.iter().all(|(_, row)| row.is_ok()));
    assert_eq!(loaded.is_ok(), page.is_ok(), "{page:?}");
    assert_eq!(loaded.is_ok(), all_rows);
    match loaded {
        Ok(history) => Ok(history.messages.iter().map(|message| message.text()).collect()),
        Err(error) => {
            assert!(!error.is_retryable());
            Err(encryption_error(&error).to_string())
        }
    }
}

/// Tries all combinations of the messages of these states, and checks that only the original states
/// open.
async fn mix(states: &[Vec<Message>], head: Option<Arc<str>>) {
    let length = states.iter().map(Vec::len).min().unwrap();
    for choice in 0..states.len().pow(length as u32) {
        let of = |position: usize| choice / states.len().pow(position as u32) % states.len();
        let chosen: Vec<_> = (0..length).map(|position| &states[of(position)][position]).collect();
        let is_state = states.iter().any(|state| state.iter().zip(&chosen).all(|(a, b)| a == *b));
        let messages = chosen.into_iter().cloned().collect();
        let forged = forge(&key(), messages, head.clone(), Vec::new()).await;
        let read = texts(&forged).await;
        assert_eq!(read.is_ok(), is_state, "{choice}: {read:?}");
    }
}

#[tokio::test]
async fn messages_of_two_branches_after_a_removed_end_do_not_open_together() {
    let mut states = Vec::new();
    // The conversation is continued twice after its first message. The run ids are the same,
    // because an attacker can cause this.
    let runs = [RunId::new(), RunId::new(), RunId::new()];
    let store = empty_store();
    let first = append(&store, of_run(runs[0], 0, Revision::ABSENT, "first")).await;
    let (beginning, head) = sealed(&store, &key()).await;
    for branch in ["a", "b"] {
        let store = forge(&key(), beginning.clone(), head.clone(), Vec::new()).await;
        assert_eq!(store.head(&key()).await.unwrap().revision, first);
        let at = append(&store, of_run(runs[1], 0, first, &format!("{branch} 2"))).await;
        append(&store, of_run(runs[2], 0, at, &format!("{branch} 3"))).await;
        states.push(sealed(&store, &key()).await.0);
    }
    mix(&states, head).await;
}

#[tokio::test]
async fn messages_of_two_lives_that_the_same_run_has_begun_do_not_open_together() {
    let (run, mut states, mut heads) = (RunId::new(), Vec::new(), Vec::new());
    for life in ["first", "second"] {
        // Each import is made by a separate process.
        let store = empty_store();
        let at = append(&store, of_run(run, 0, Revision::ABSENT, &format!("{life} 1"))).await;
        append(&store, of_run(run, 1, at, "the same")).await;
        let (messages, head) = sealed(&store, &key()).await;
        states.push(messages);
        heads.push(head);
    }
    for (own, head) in heads.iter().enumerate() {
        for choice in 0..4 {
            let messages = [choice % 2, choice / 2];
            let mixed = messages.iter().enumerate().map(|(at, of)| states[*of][at].clone());
            let forged = forge(&key(), mixed.collect(), head.clone(), Vec::new()).await;
            let read = texts(&forged).await;
            assert_eq!(read.is_ok(), messages == [own; 2], "{messages:?} {own}: {read:?}");
        }
    }
}

#[tokio::test]
async fn a_conversation_that_is_deleted_and_created_again_has_another_life() {
    let (run, store) = (RunId::new(), empty_store());
    let mut lives = Vec::new();
    for by_another_process in [false, true, false] {
        assert_eq!(store.head(&key()).await.unwrap().revision, Revision::ABSENT);
        append(&store, of_run(run, 0, Revision::ABSENT, "the same")).await;
        let head = sealed(&store, &key()).await.1.unwrap();
        lives.push(head.split(':').nth(2).unwrap().to_owned());
        let deleted = match by_another_process {
            true => store.inner().delete(&key()).await,
            false => store.delete(&key()).await,
        };
        assert!(deleted.unwrap());
    }
    lives.sort_unstable();
    lives.dedup();
    assert_eq!(lives.len(), 3, "{lives:?}");
}

/// This process must not use its state of the deleted conversation for the new one.
#[tokio::test]
async fn a_conversation_that_another_process_has_created_again_can_be_continued() {
    let (run, store) = (RunId::new(), empty_store());
    append(&store, of_run(run, 0, Revision::ABSENT, "mine")).await;
    let other = EncryptedStore::new(store.inner().clone(), keys()).without_former_values();
    assert!(other.delete(&key()).await.unwrap());
    let at = append(&other, of_run(run, 0, Revision::ABSENT, "theirs")).await;
    assert_eq!(store.head(&key()).await.unwrap().revision, at);
    append(&store, of_run(RunId::new(), 0, at, "next")).await;
    assert_eq!(texts(&store).await.unwrap(), ["theirs", "next"]);
}

#[tokio::test]
async fn a_repeated_write_leaves_the_conversation_readable() {
    let store = empty_store();
    let first = of_run(RunId::new(), 0, Revision::ABSENT, "first");
    let second = of_run(RunId::new(), 0, first.result(), "second");
    let third = of_run(RunId::new(), 0, second.result(), "third");
    for write in [&first, &first, &second, &first, &second, &third, &third] {
        append(&store, write.clone()).await;
    }
    assert_eq!(texts(&store).await.unwrap(), ["first", "second", "third"]);
}

/// The next write of this process follows the stored write of the other process, not its own
/// refused write.
#[tokio::test]
async fn the_chain_continues_from_the_last_stored_write_after_a_refused_write() {
    let store = empty_store();
    let at = append(&store, of_run(RunId::new(), 0, Revision::ABSENT, "first")).await;
    let other = EncryptedStore::new(store.inner().clone(), keys()).without_former_values();
    other.head(&key()).await.unwrap();
    let theirs = append(&other, of_run(RunId::new(), 0, at, "theirs")).await;
    let slot = store.reserve().await.unwrap();
    let refused = store.append(slot, vec![of_run(RunId::new(), 0, at, "mine")]).await;
    refused.unwrap_err();
    assert_eq!(store.head(&key()).await.unwrap().revision, theirs);
    append(&store, of_run(RunId::new(), 0, theirs, "mine")).await;
    assert_eq!(texts(&store).await.unwrap(), ["first", "theirs", "mine"]);
}

/// Creates a conversation with a visible message and an open run of two messages.
async fn open_run(store: &Store) -> (RunId, Revision) {
    let first = append(store, of_run(RunId::new(), 0, Revision::ABSENT, "seen")).await;
    let run = RunId::new();
    let opens = of_run(run, 0, first, "staged 1").staged(staged(1, None)).beginning_attempt();
    let at = append(store, opens).await;
    (run, append(store, of_run(run, 1, at, "staged 2").staged(staged(1, None))).await)
}

#[tokio::test]
async fn stored_messages_that_were_replaced_with_messages_of_a_discarded_run_are_refused() {
    let store = empty_store();
    let (run, at) = open_run(&store).await;
    let discarded = store.inner().open_run(&key()).await.unwrap().unwrap().messages;
    let close = Some(Close::Discard { visible: 1 });
    let end = Write::new(key(), MessageId { run, index: 2 }, at, []).staged(staged(1, close));
    let mut at = append(&store, end).await;
    for text in ["stored 1", "stored 2"] {
        at = append(&store, of_run(RunId::new(), 0, at, text)).await;
    }
    let (stored, head) = sealed(&store, &key()).await;
    assert_eq!(texts(&store).await.unwrap(), ["seen", "stored 1", "stored 2"]);
    let discarded: Vec<Message> = discarded.iter().map(|message| (**message).clone()).collect();
    for replaced in [vec![0], vec![1], vec![0, 1]] {
        let mut forged = stored.clone();
        for position in replaced {
            forged[1 + position] = discarded[position].clone();
        }
        let forged = forge(&key(), forged, head.clone(), Vec::new()).await;
        texts(&forged).await.unwrap_err();
    }
    let cut = [&stored[..1], &discarded[..1]].concat();
    let error = texts(&forge(&key(), cut, head, Vec::new()).await).await.unwrap_err();
    assert!(error.contains("never committed"), "{error}");
}

#[tokio::test]
async fn a_run_that_is_committed_can_be_read_and_continued() {
    for (with_message, by_another_process) in
        [(true, false), (true, true), (false, false), (false, true)]
    {
        let store = empty_store();
        let (run, at) = open_run(&store).await;
        let store = match by_another_process {
            false => store,
            true => {
                let other = EncryptedStore::new(store.inner().clone(), keys());
                let content = other.open_run(&key()).await.unwrap().unwrap();
                assert_eq!((content.messages.len(), content.head.revision), (2, at));
                other
            }
        };
        let attempt = if by_another_process { 2 } else { 1 };
        let messages = with_message.then(|| Arc::new(Message::assistant("done")));
        let end = Write::new(key(), MessageId { run, index: 2 }, at, messages)
            .staged(staged(attempt, Some(Close::Commit)));
        let end = if by_another_process { end.beginning_attempt() } else { end };
        let at = append(&store, end).await;
        append(&store, of_run(RunId::new(), 0, at, "next")).await;
        let mut expected = vec!["seen", "staged 1", "staged 2", "done", "next"];
        expected.retain(|text| *text != "done" || with_message);
        assert_eq!(texts(&store).await.unwrap(), expected, "{with_message} {by_another_process}");
    }
}

#[tokio::test]
async fn a_run_that_is_committed_by_a_write_without_messages_can_be_read() {
    let store = empty_store();
    let (run, at) = open_run(&store).await;
    let close = staged(1, Some(Close::Commit));
    append(&store, Write::new(key(), MessageId { run, index: 2 }, at, []).staged(close)).await;
    assert_eq!(texts(&store).await.unwrap(), ["seen", "staged 1", "staged 2"]);
}

#[tokio::test]
async fn after_a_repeated_commit_without_a_message_each_message_can_be_rewritten() {
    for rewritten in [None, Some(1), Some(2), Some(3)] {
        let store = empty_store();
        let (run, at) = open_run(&store).await;
        let close = staged(1, Some(Close::Commit));
        let end = Write::new(key(), MessageId { run, index: 2 }, at, []).staged(close);
        let mut at = append(&store, end.clone()).await;
        assert_eq!(append(&store, end).await, at);
        let mut expected = vec!["seen", "staged 1", "staged 2", "next"];
        if let Some(sequence) = rewritten {
            let mut rewrite = Rewrite::new(key(), at);
            rewrite.messages.push((sequence, Message::user("rewritten")));
            at = store.rewrite(rewrite).await.unwrap();
            expected[sequence as usize - 1] = "rewritten";
        }
        assert_eq!(texts(&store).await.unwrap(), expected[..3]);
        append(&store, of_run(RunId::new(), 0, at, "next")).await;
        assert_eq!(texts(&store).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_commit_without_a_message_that_failed_can_be_sent_again() {
    let store = empty_store();
    let (run, at) = open_run(&store).await;
    let open = store.inner().clone();
    let end = Write::new(key(), MessageId { run, index: 2 }, at, [])
        .staged(staged(1, Some(Close::Commit)));
    let mut refused = end.clone();
    refused = refused.with_claims(vec![Claim {
        call: SequencePosition { sequence: 1, index: 0 },
        started_at: Some(SystemTime::UNIX_EPOCH),
    }]);
    let slot = store.reserve().await.unwrap();
    store.append(slot, vec![refused]).await.unwrap_err();
    assert!(open.head(&key()).await.unwrap().open_run.is_some());
    append(&store, end).await;
    assert_eq!(texts(&store).await.unwrap(), ["seen", "staged 1", "staged 2"]);
}

/// The head records that one run was committed without a message. This record must not commit a
/// later run.
#[tokio::test]
async fn a_commit_without_the_key_is_refused_after_an_earlier_commit_without_a_message() {
    let store = empty_store();
    let (run, at) = open_run(&store).await;
    let commit = |run, index, at| {
        let id = MessageId { run, index };
        Write::new(key(), id, at, []).staged(staged(1, Some(Close::Commit)))
    };
    let at = append(&store, commit(run, 2, at)).await;
    let run = RunId::new();
    let opens = of_run(run, 0, at, "never committed").staged(staged(1, None)).beginning_attempt();
    let at = append(&store, opens).await;
    let committed = ["seen", "staged 1", "staged 2"];
    assert_eq!(texts(&store).await.unwrap(), committed);
    append(store.inner(), commit(run, 1, at).sealed()).await;
    let error = texts(&store).await.unwrap_err();
    assert!(error.contains("never committed"), "{error}");
    let mut rewrite = Rewrite::new(key(), store.inner().head(&key()).await.unwrap().revision);
    rewrite.messages.push((2, Message::user("rewritten")));
    store.rewrite(rewrite).await.unwrap();
    let error = texts(&store).await.unwrap_err();
    assert!(error.contains("never committed"), "{error}");
}

#[tokio::test]
async fn staged_messages_do_not_open_after_visible_messages_of_another_branch() {
    let store = empty_store();
    let (_, _) = open_run(&store).await;
    let staged_messages = store.inner().open_run(&key()).await.unwrap().unwrap().messages;
    let other =
        forge(&key(), sealed(&store, &key()).await.0, sealed(&store, &key()).await.1, vec![]).await;
    let at = other.head(&key()).await.unwrap().revision;
    let at = append(&other, of_run(RunId::new(), 0, at, "another branch")).await;
    let first = staged_messages[0].id.unwrap();
    let write = Write::new(key(), first, at, staged_messages.clone()).staged(staged(1, None));
    append(other.inner(), write).await;
    other.open_run(&key()).await.unwrap_err();
}

#[tokio::test]
async fn a_rewritten_conversation_opens_and_a_mix_with_its_earlier_state_does_not() {
    let store = empty_store();
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        at = append(&store, of_run(RunId::new(), 0, at, text)).await;
    }
    let (before, head) = sealed(&store, &key()).await;
    let mut rewrite = Rewrite::new(key(), at);
    rewrite.messages.push((2, Message::user("rewritten")));
    let at = store.rewrite(rewrite).await.unwrap();
    append(&store, of_run(RunId::new(), 0, at, "four")).await;
    assert_eq!(texts(&store).await.unwrap(), ["one", "rewritten", "three", "four"]);
    let (mut after, _) = sealed(&store, &key()).await;
    after.truncate(3);
    mix(&[before, after], head).await;
}

/// The documentation of the crate lists this attack.
#[tokio::test]
async fn a_conversation_whose_last_messages_were_removed_without_the_key_still_opens() {
    let store = empty_store();
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        at = append(&store, of_run(RunId::new(), 0, at, text)).await;
    }
    let (mut stored, head) = sealed(&store, &key()).await;
    stored.truncate(2);
    let forged = forge(&key(), stored, head, Vec::new()).await;
    assert_eq!(texts(&forged).await.unwrap(), ["one", "two"]);
}

/// The digest covers the whole sealed content of calls and results.
#[tokio::test]
async fn calls_and_results_of_two_branches_do_not_open_together() {
    let (run, mut states, mut head) = (RunId::new(), Vec::new(), None);
    let store = empty_store();
    let first = append(&store, of_run(RunId::new(), 0, Revision::ABSENT, "first")).await;
    let (beginning, beginning_head) = sealed(&store, &key()).await;
    for city in ["Paris", "Rome"] {
        let store = forge(&key(), beginning.clone(), beginning_head.clone(), Vec::new()).await;
        store.head(&key()).await.unwrap();
        let call = ToolCall::new("call_1", "look", format!("{{\"city\":\"{city}\"}}"));
        let messages = [Message::tool_calls([call]), Message::assistant("done")];
        let write = Write::new(key(), MessageId { run, index: 0 }, first, messages.map(Arc::new));
        append(&store, write).await;
        let (messages, found) = sealed(&store, &key()).await;
        states.push(messages);
        head = found;
    }
    mix(&states, head.clone()).await;
    // The message combines the body of one state with the call of the other.
    let mut crossed = states[0].clone();
    crossed[1].parts[1] = states[1][1].parts[1].clone();
    texts(&forge(&key(), crossed.clone(), head.clone(), Vec::new()).await).await.unwrap_err();
    // No message follows the combined one.
    crossed.truncate(2);
    texts(&forge(&key(), crossed, head, Vec::new()).await).await.unwrap_err();
}

#[tokio::test]
async fn a_conversation_is_readable_after_a_write_to_another_conversation() {
    let store = empty_store();
    let other = ConversationKey::new("alice", "other");
    append(&store, write(&other, Revision::ABSENT, [Message::user("well")])).await;
    append(&store, of_run(RunId::new(), 0, Revision::ABSENT, "x")).await;
    assert_eq!(store.load(&other).await.unwrap().messages.len(), 1);
}
