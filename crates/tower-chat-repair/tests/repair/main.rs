//! Tests [`verify`], [`plan_repair`] and [`repair`] with stores that contain a call without a
//! result.

#![allow(clippy::unwrap_used, reason = "a panic is a failing test")]

use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId, ToolCall,
    store::{HistoryStore, Revision, author::Write},
};
use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey};
use tower_chat_repair::{
    INTERRUPTED, Repair, RepairError, Repaired, Target, Verified, plan_repair, repair, verify,
};
use tower_chat_sqlite::SqliteStore;

mod summaries;

const DANGLING: &str =
    r#"conversation alice/c, message 2: the call of tool "look" (id "c1") has no result"#;

fn key() -> ConversationKey {
    ConversationKey::new("alice", "c")
}

/// Stores a conversation of two messages: a question of the user, and a call without a result.
async fn fill(store: &impl HistoryStore) {
    let id = MessageId { run: RunId::new(), index: 0 };
    let messages = [Message::user("hi"), Message::tool_calls([ToolCall::new("c1", "look", "{}")])];
    let write = Write::new(key(), id, Revision::ABSENT, messages.map(Into::into));
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
}

async fn verified(target: &Target) -> (Verified, Vec<String>) {
    let mut found = Vec::new();
    let verified = verify(target, &mut |finding| found.push(finding.to_string())).await.unwrap();
    (verified, found)
}

async fn repaired(target: &Target, is_planned: bool) -> (Repaired, Vec<String>) {
    let mut done = Vec::new();
    let mut report = |repair| match repair {
        Repair::Done(finding) => done.push(finding.to_string()),
        other => panic!("{other:?}"),
    };
    let repaired = match is_planned {
        true => plan_repair(target, &mut report).await,
        false => repair(target, &mut report).await,
    };
    (repaired.unwrap(), done)
}

async fn assert_is_repaired(target: &Target, store: &impl HistoryStore) {
    let (found, problems) = verified(target).await;
    assert_eq!((found.problems, found.conversations, found.messages), (1, 1, 2));
    assert_eq!(problems, [DANGLING]);
    let expected = format!("{DANGLING}: it receives a result that reports an interruption");
    for is_planned in [true, false] {
        assert_eq!(store.load(&key()).await.unwrap().messages.len(), 2);
        let (count, done) = repaired(target, is_planned).await;
        assert_eq!((count.repaired, count.left), (1, 0));
        assert_eq!(done, std::slice::from_ref(&expected));
        let history = store.load(&key()).await.unwrap();
        let results: Vec<String> = history
            .messages
            .iter()
            .flat_map(|message| message.results())
            .map(|result| result.text())
            .collect();
        assert_eq!(results, if is_planned { vec![] } else { vec![INTERRUPTED.to_owned()] });
    }
    assert_eq!(repaired(target, false).await.0, Repaired::default());
    assert_eq!(verified(target).await.0.problems, 0);
}

#[tokio::test]
async fn a_store_is_repaired_as_planned() {
    let store = MemoryStore::new();
    fill(&store).await;
    let target = Target::new(store.clone());
    assert!(!target.has_file());
    assert_is_repaired(&target, &store).await;
}

#[tokio::test]
async fn a_file_is_checked_with_its_conversations() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    fill(&store).await;
    let target = Target::new(store.clone()).with_file(store.clone());
    assert!(target.has_file());
    assert_is_repaired(&target, &store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn encrypted_conversations_need_their_keys() {
    let keys = |name, byte| MasterKeys::new(name, SecretKey::from_bytes([byte; 32])).unwrap();
    let inner = MemoryStore::new();
    let store = EncryptedStore::new(inner.clone(), keys("first", 7));
    fill(&store).await;
    let sealed = verify(&Target::new(inner.clone()), &mut |_| {}).await.unwrap_err();
    assert!(matches!(&sealed, RepairError::Sealed { key: found } if *found == key()), "{sealed}");
    let other = EncryptedStore::new(inner, keys("second", 8));
    let unopened = repair(&Target::encrypted(other), &mut |_| {}).await.unwrap_err();
    assert!(matches!(unopened, RepairError::NoKey { .. }), "{unopened}");
    assert_is_repaired(&Target::encrypted(store.clone()), &store).await;
}
