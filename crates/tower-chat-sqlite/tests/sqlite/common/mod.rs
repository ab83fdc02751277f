//! Helpers of several tests.
#![allow(dead_code, reason = "no test program uses all helpers")]

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        HistoryStore, Revision,
        author::{AppendError, Write},
    },
};

pub(crate) fn key(id: &str) -> ConversationKey {
    ConversationKey::new("tests", id)
}

/// Returns a write of a run. The index of its first message in the run is the number of messages in
/// the conversation.
pub(crate) fn write(
    key: &ConversationKey,
    run: RunId,
    expected: Revision,
    texts: &[&str],
) -> Write {
    let index = u32::try_from(expected.sequence).unwrap();
    let messages: Vec<Arc<Message>> =
        texts.iter().map(|text| Message::user(*text).into()).collect();
    Write::new(key.clone(), MessageId { run, index }, expected, messages)
}

pub(crate) async fn append(
    store: &dyn HistoryStore,
    writes: Vec<Write>,
) -> Result<Revision, AppendError> {
    let slot = store.reserve().await.unwrap();
    store.append(slot, writes).await
}

pub(crate) async fn texts(store: &dyn HistoryStore, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.unwrap();
    history.messages.iter().map(|message| message.text()).collect()
}
