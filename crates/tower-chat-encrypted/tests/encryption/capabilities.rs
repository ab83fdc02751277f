//! Tests of the capabilities of an encrypted store.

use tower_chat_core::{
    MemoryStore,
    store::{self, HistoryStore},
};
use tower_chat_encrypted::EncryptedStore;

use crate::common::keys;

/// A store without capabilities.
struct Bare(MemoryStore);

impl store::author::StoreWrapper for Bare {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }
}

fn address<T: ?Sized>(value: &T) -> *const () {
    std::ptr::from_ref(value).cast()
}

#[test]
fn an_encrypted_store_has_no_capability_that_the_inner_store_lacks() {
    let store = EncryptedStore::new(Bare(MemoryStore::new()), keys());
    assert!(store.journal().is_none() && store.directory().is_none());
    assert!(store.tool_calls().is_none() && store.maintenance().is_none());
    assert!(store.summaries().is_none());
}

#[test]
fn an_encrypted_store_implements_every_capability_itself() {
    // A capability of the inner store would store plaintext and return sealed values.
    let store = EncryptedStore::new(MemoryStore::new(), keys());
    let own = Some(address(&store));
    assert_eq!(store.journal().map(address), own);
    assert_eq!(store.directory().map(address), own);
    assert_eq!(store.tool_calls().map(address), own);
    assert_eq!(store.maintenance().map(address), own);
    assert_eq!(store.summaries().map(address), own);
}
