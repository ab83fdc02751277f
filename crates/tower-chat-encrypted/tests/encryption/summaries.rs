//! Tests that summaries are sealed (encrypted) for their conversation, their range and their last
//! message.

use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{
        AddedSummary, HistoryStore, HistorySummary, Revision, StoreError, Summaries, author::Write,
    },
};
use tower_chat_encrypted::EncryptedStore;

use crate::common::keys;

const TEXT: &str = "Alice looks for a coat.";

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("alice", id)
}

/// Writes two messages of the given run, and returns a summary that covers both messages.
async fn summarized(
    store: &EncryptedStore<MemoryStore>,
    key: &ConversationKey,
    run: RunId,
) -> HistorySummary {
    store.head(key).await.unwrap();
    let messages = ["A coat?", "Yes."].map(|text| Message::user(text).into());
    let write = Write::new(key.clone(), MessageId { run, index: 0 }, Revision::ABSENT, messages);
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    let summary = HistorySummary::new(2, MessageId { run, index: 1 }, TEXT);
    let added = store.add_summary(key, &summary, 0).await.unwrap();
    assert_eq!(added, AddedSummary::Stored);
    summary
}

/// Returns the summary that the inner store contains.
async fn stored(store: &EncryptedStore<MemoryStore>, key: &ConversationKey) -> HistorySummary {
    store.inner().history_summaries(key).await.unwrap().remove(0)
}

/// Replaces the summary in the inner store.
async fn replace(
    store: &EncryptedStore<MemoryStore>,
    key: &ConversationKey,
    planted: &HistorySummary,
) {
    let before = stored(store, key).await;
    assert!(store.inner().remove_summary(key, before.id).await.unwrap());
    let added = store.inner().add_summary(key, planted, 0).await.unwrap();
    assert_eq!(added, AddedSummary::Stored);
}

async fn unreadable(store: &EncryptedStore<MemoryStore>, key: &ConversationKey, id: u64) {
    let list = store.history_summaries(key).await.map(drop);
    let one = store.history_summary(key, id).await.map(drop);
    for refused in [list, one] {
        assert!(matches!(refused, Err(StoreError::Unreadable { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn the_text_of_a_summary_is_sealed_and_opens_only_in_its_own_row() {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    let (coats, run) = (key("coats"), RunId::new());
    let summary = summarized(&store, &coats, run).await;
    assert_eq!(store.history_summaries(&coats).await.unwrap(), std::slice::from_ref(&summary));
    assert_eq!(store.head(&coats).await.unwrap().summary, Some(summary.in_force()));
    let sealed = stored(&store, &coats).await;
    assert!(sealed.text.starts_with("tower-chat-3:") && !sealed.text.contains(TEXT));

    // A text in plaintext, and the sealed text under another id and with another range.
    let mut plain = sealed.clone();
    (plain.id, plain.text) = (7, TEXT.into());
    let mut renamed = sealed.clone();
    renamed.id = 8;
    let mut shortened = sealed.clone();
    (shortened.covers_to, shortened.last) = (1, MessageId { run, index: 0 });
    for planted in [plain, renamed, shortened] {
        replace(&store, &coats, &planted).await;
        unreadable(&store, &coats, planted.id).await;
    }
    replace(&store, &coats, &sealed).await;
    assert_eq!(store.history_summary(&coats, summary.id).await.unwrap(), Some(summary));
}

#[tokio::test]
async fn the_text_of_a_summary_opens_only_in_its_own_conversation_and_life() {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    let (coats, hats, run) = (key("coats"), key("hats"), RunId::new());
    summarized(&store, &coats, run).await;
    let of_coats = stored(&store, &coats).await;
    // The messages of the other conversation have the same ids.
    summarized(&store, &hats, run).await;
    replace(&store, &hats, &of_coats).await;
    unreadable(&store, &hats, of_coats.id).await;

    // The conversation is deleted, and created again with other messages.
    assert!(store.delete(&coats).await.unwrap());
    let later = RunId::new();
    summarized(&store, &coats, later).await;
    let mut planted = of_coats;
    planted.last = MessageId { run: later, index: 1 };
    replace(&store, &coats, &planted).await;
    unreadable(&store, &coats, planted.id).await;
}
