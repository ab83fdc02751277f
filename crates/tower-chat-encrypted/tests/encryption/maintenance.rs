//! Tests of reading and rewriting sealed (encrypted) rows.

use tower_chat_core::{
    MemoryStore, Message, ToolStatus,
    store::{HistoryStore, Maintenance, Revision, Rewrite, SequencePosition},
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError, MasterKeys, SecretKey};

use crate::common::{Store, append, encryption_error, key, keys, messages, rows, sealed, write};

async fn store() -> Store {
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    let write = write(&key(), Revision::ABSENT, messages()).with_tools(rows());
    append(&store, write).await;
    store
}

/// Returns the position of each row, and whether the row can be decrypted.
async fn are_readable(store: &Store) -> (Vec<(u64, bool)>, Vec<(SequencePosition, bool)>) {
    let rows = store.rows(&key()).await.unwrap().unwrap();
    let messages = rows.messages.iter().map(|(number, message)| (*number, message.is_ok()));
    let tools = rows.tools.iter().map(|(call, row)| (*call, row.is_ok()));
    (messages.collect(), tools.collect())
}

fn call(index: u32) -> SequencePosition {
    SequencePosition { sequence: 2, index }
}

#[tokio::test]
async fn rows_that_do_not_open_are_returned_as_errors_among_the_opened_rows() {
    let store = store().await;
    let opened = store.rows(&key()).await.unwrap().unwrap();
    let loaded = store.load(&key()).await.unwrap();
    let texts: Vec<_> = opened.messages.into_iter().map(|(_, it)| it.unwrap()).collect();
    assert!(texts.iter().eq(loaded.messages.iter()));
    let records: Vec<_> = opened.tools.into_iter().map(|(_, row)| row.unwrap()).collect();
    assert_eq!(records, rows());

    // A writer without the key has replaced the last message with the first, and changed a row.
    let (inside, _) = sealed(&store, &key()).await;
    let at = store.inner().head(&key()).await.unwrap().revision;
    let found = store.inner().rows(&key()).await.unwrap().unwrap();
    let mut changed = found.tools[1].1.clone().unwrap();
    changed.status = ToolStatus::Ok;
    let mut attack = Rewrite::new(key(), at);
    attack.messages.push((3, inside[0].clone()));
    attack.tools.push(changed);
    store.inner().rewrite(attack).await.unwrap();
    let expected_tools = [(call(0), true), (call(1), false), (call(2), true)];
    assert_eq!(
        are_readable(&store).await,
        (vec![(1, true), (2, true), (3, false)], expected_tools.to_vec())
    );
    let rows = store.rows(&key()).await.unwrap().unwrap();
    let cause = std::error::Error::source(rows.messages[2].1.as_ref().unwrap_err()).unwrap();
    assert!(cause.to_string().contains("moved from message 1"), "{cause}");
}

#[tokio::test]
async fn reading_rows_without_their_key_fails_with_the_error_of_the_key() {
    let store = store().await;
    let other = MasterKeys::new("second", SecretKey::from_bytes([8; 32])).unwrap();
    let without = EncryptedStore::new(store.inner().clone(), other);
    let error = without.rows(&key()).await.unwrap_err();
    assert!(matches!(encryption_error(&error), EncryptionError::Key(_)), "{error:?}");
    assert!(without.rewrite(Rewrite::new(key(), Revision::ABSENT)).await.is_err());
}

#[tokio::test]
async fn a_rewrite_seals_its_messages_and_rows_for_their_positions() {
    let store = store().await;
    let found = store.rows(&key()).await.unwrap().unwrap();
    let mut rewrite = Rewrite::new(key(), found.head.revision);
    rewrite.messages.push((1, Message::user("another secret question")));
    let mut row = rows().remove(2);
    row.status = ToolStatus::Interrupted;
    row.error = Some("another secret error".to_owned());
    rewrite.tools.push(row.clone());
    let after = store.rewrite(rewrite).await.unwrap();

    let (inside, _) = sealed(&store, &key()).await;
    let rows_inside = store.inner().rows(&key()).await.unwrap().unwrap();
    let inside = format!("{inside:?}{rows_inside:?}");
    assert!(!inside.contains("another"), "{inside}");
    // Another process opens the conversation. This process then continues without reading it again.
    let elsewhere = EncryptedStore::new(store.inner().clone(), keys());
    let history = elsewhere.load(&key()).await.unwrap();
    assert_eq!(history.head.revision, after);
    let first = history.messages.get(0).unwrap();
    assert_eq!(first.text(), "another secret question");
    let opened = elsewhere.rows(&key()).await.unwrap().unwrap();
    assert_eq!(opened.tools[2].1, Ok(row));
    append(&store, write(&key(), after, [Message::user("secret continuation")])).await;
    assert_eq!(elsewhere.load(&key()).await.unwrap().messages.len(), 4);
}
