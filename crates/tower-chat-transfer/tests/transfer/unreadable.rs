//! Tests of transfers in which some conversations cannot be decrypted.

use tower_chat::{
    HistoryStore, MemoryStore,
    store::{Directory, StoreError},
    transfer::{OutcomeKind, Selection, copy, delete_conversation, delete_scope},
};
use tower_chat_encrypted::{EncryptedStore, ErasableKeys};

use crate::conversations::{add_run, export_alice, fill, key};

const IDS: [&str; 3] = ["erased", "hats", "scarves"];

/// Creates a store with three conversations, and erases the encryption key of one of them.
async fn with_erased_key() -> EncryptedStore<MemoryStore> {
    let keys = ErasableKeys::new();
    let store = EncryptedStore::new(MemoryStore::new(), keys.clone());
    for id in IDS {
        fill(&store, &key(id)).await;
        add_run(&store, &key(id), 90, &["A secret."]).await;
    }
    assert!(keys.erase(&key("erased")));
    let error = store.load(&key("erased")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
    store
}

#[tokio::test]
async fn the_other_conversations_are_transferred_although_one_cannot_be_decrypted() {
    let store = with_erased_key().await;
    // A repeated export must have the same result.
    for _ in 0..2 {
        let exported = String::from_utf8(export_alice(&store).await).unwrap();
        assert!(exported.contains("hats") && exported.contains("scarves"), "{exported}");
    }
    let other = MemoryStore::new();
    let alice = Selection::scope("alice");
    for (kind, count) in [(OutcomeKind::Written, 2), (OutcomeKind::Unchanged, 2)] {
        let receipt = copy(&store, &other, &alice, &mut |_| Ok(())).await.unwrap();
        assert_eq!(receipt.total(kind).conversations, count, "{receipt:?}");
        assert_eq!(receipt.total(OutcomeKind::Refused).conversations, 1);
        let step = &receipt.refused[0];
        assert_eq!(step.key(), key("erased"));
        assert!(format!("{:?}", step.outcome).contains("key"), "{:?}", step.outcome);
    }
    // The copy must refuse only the conversation that cannot be decrypted at the target.
    let receipt = copy(&other, &store, &alice, &mut |_| Ok(())).await.unwrap();
    assert_eq!(receipt.total(OutcomeKind::Unchanged).conversations, 2, "{receipt:?}");
    assert_eq!(store.list("alice", None, 9).await.unwrap(), IDS.map(key));

    let receipt = delete_scope(&store, "alice", &mut |_| Ok(())).await.unwrap();
    assert_eq!(receipt.total(OutcomeKind::Deleted).conversations, 3, "{receipt:?}");
    assert!(store.list("alice", None, 9).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_conversation_that_cannot_be_decrypted_can_be_deleted_alone() {
    let store = with_erased_key().await;
    let receipt = delete_conversation(&store, &key("erased"), &mut |_| Ok(())).await.unwrap();
    assert_eq!(receipt.total(OutcomeKind::Deleted).conversations, 1, "{receipt:?}");
    assert_eq!(store.list("alice", None, 9).await.unwrap(), ["hats", "scarves"].map(key));
}

/// Encrypted data must not be copied without their keys, because the target would not be marked as
/// containing encrypted data.
#[tokio::test]
async fn encrypted_conversations_are_not_copied_without_their_keys() {
    let store = with_erased_key().await;
    let other = MemoryStore::new();
    let alice = Selection::scope("alice");
    let receipt = copy(store.inner(), &other, &alice, &mut |_| Ok(())).await.unwrap();
    assert_eq!(receipt.total(OutcomeKind::Refused).conversations, 3, "{receipt:?}");
    assert!(format!("{receipt:?}").contains("encrypted"), "{receipt:?}");
    assert!(other.list("alice", None, 9).await.unwrap().is_empty());
}
