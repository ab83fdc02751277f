//! The rules for large messages and for long conversations.

use std::sync::Arc;

use tower_chat_core::{
    Message, MessageId, RunId,
    store::{HistoryStore, Revision, author::Write},
};

use super::{
    Store,
    fixture::{key, revision, stored, write},
};

/// A message of 16 MB can be stored in one write, and is loaded unchanged.
pub async fn a_message_of_16_megabytes_is_stored(store: Store) {
    let key = key("16 MB");
    // The text contains a character that JSON escapes, and a character of two bytes.
    let text = "0123456789abc\"\u{e9}".repeat(1024 * 1024);
    assert_eq!(text.len(), 16 * 1024 * 1024);
    let at = stored(&store, write(&key, Revision::ABSENT, &[&text])).await;
    let at = stored(&store, write(&key, at, &["after"])).await;
    let history = store.load(&key).await.expect("the history is loaded");
    assert_eq!((history.messages.len(), history.head.revision), (2, at));
    let first = history.messages.get(0).expect("there is a message");
    assert!(first.text() == text, "the long text is returned unchanged");
}

/// A conversation of 20,000 messages can be stored, loaded and continued.
pub async fn a_conversation_of_20_000_messages_is_stored(store: Store) {
    const WRITES: u32 = 10;
    const MESSAGES: u32 = 2_000;
    let key = key("20,000");
    let text = |number: u32| format!("message {number}");
    let mut at = Revision::ABSENT;
    let mut runs = Vec::new();
    for number in 0..WRITES {
        let messages = (0..MESSAGES).map(|it| Message::user(text(number * MESSAGES + it)));
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key.clone(), id, at, messages.map(Arc::new));
        at = stored(&store, write).await;
        runs.push(id.run);
    }
    assert_eq!((at.sequence, revision(&store, &key).await), (20_000, at));
    let at = stored(&store, write(&key, at, &["one more"])).await;
    let history = store.load(&key).await.expect("the history is loaded");
    assert_eq!((history.messages.len(), history.head.revision), (20_001, at));
    for (number, message) in (0..WRITES * MESSAGES).zip(history.messages.iter()) {
        let run = runs[(number / MESSAGES) as usize];
        assert_eq!(message.id, Some(MessageId { run, index: number % MESSAGES }));
        assert_eq!(message.text(), text(number));
    }
    assert_eq!(history.messages.last().map(|message| message.text()), Some("one more".to_owned()));
}
