//! Tests with stores that wrap an encrypted store, and with stores that an encrypted store wraps.

use std::{
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::{
    MemoryStore, Message, MessageId, RunId,
    store::{
        self, HistoryStore, Journal, Lease, LeaseEnd, Maintenance, Revision,
        author::{Close, Slot, Staged, Ticket, Write},
    },
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError, ErasableKeys, KeyError};

use crate::common::{append, encryption_error, key, keys, write};

#[tokio::test]
async fn a_conversation_is_unreadable_after_its_key_was_erased_and_the_cache_has_forgotten_it() {
    for revalidation in [Revalidation::Never, Revalidation::Always] {
        let (inner, erasable) = (MemoryStore::new(), ErasableKeys::new());
        let encrypted = EncryptedStore::new(inner.clone(), erasable.clone());
        let options = CacheOptions::new().with_revalidation(revalidation);
        let store = CachingStore::with_options(encrypted, options);
        let mut at = Revision::ABSENT;
        for text in ["secret 1", "secret 2"] {
            at = append(&store, write(&key(), at, [Message::user(text)])).await;
        }
        assert_eq!(store.load(&key()).await.unwrap().messages.len(), 2);
        append(&store, write(&key(), at, [Message::user("secret 3")])).await;

        assert!(erasable.erase(&key()));
        store.forget(&key());
        store.flush().await.unwrap();
        let error = store.load(&key()).await.unwrap_err();
        let error = encryption_error(&error);
        assert!(matches!(error, EncryptionError::Key(KeyError::Unknown { .. })), "{error:?}");
        let stored = inner.load(&key()).await.unwrap();
        assert_eq!(stored.messages.len(), 3);
        assert!(!format!("{stored:?}").contains("secret"));
    }
}

/// A store in which another task reads the conversation between the submission of a write and its
/// storage.
struct ReadMeanwhile {
    inner: MemoryStore,
    reader: Arc<OnceLock<Arc<dyn HistoryStore>>>,
}

#[async_trait]
impl store::author::StoreWrapper for ReadMeanwhile {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        if let Some(reader) = self.reader.get() {
            let reader: &dyn HistoryStore = &**reader;
            let reads = async {
                reader.head(&key()).await.unwrap();
                reader.load(&key()).await.unwrap();
                reader.open_run(&key()).await.unwrap();
                reader.rows(&key()).await.unwrap();
            };
            reads.now_or_never().expect("a store in memory answers at once");
        }
        self.inner().append(slot, writes)
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }
}

#[tokio::test]
async fn a_read_during_a_submission_does_not_change_how_the_next_write_is_sealed() {
    let reader = Arc::<OnceLock<Arc<dyn HistoryStore>>>::default();
    let inner = ReadMeanwhile { inner: MemoryStore::new(), reader: reader.clone() };
    let store: Arc<dyn HistoryStore> = Arc::new(EncryptedStore::new(inner, keys()));
    assert!(reader.set(store.clone()).is_ok());
    let mut at = Revision::ABSENT;
    for text in ["first", "second"] {
        at = append(&*store, write(&key(), at, [Message::user(text)])).await;
    }
    let run = RunId::new();
    let lease = Lease {
        attempt: 1,
        holder: 1,
        renewed_at: SystemTime::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    for (index, text) in ["third", "fourth", "fifth"].into_iter().enumerate() {
        let close = (index == 2).then_some(Close::Commit);
        let staged = Staged { lease, close, service_id: None, partial_text: None };
        let id = MessageId { run, index: u32::try_from(index).unwrap() };
        let write = Write::new(key(), id, at, [Message::user(text).into()]).staged(staged);
        let write = if index == 0 { write.beginning_attempt() } else { write };
        at = append(&*store, write).await;
    }
    append(&*store, write(&key(), at, [Message::user("sixth")])).await;
    let history = store.load(&key()).await.unwrap();
    let texts: Vec<_> = history.messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["first", "second", "third", "fourth", "fifth", "sixth"]);
}
