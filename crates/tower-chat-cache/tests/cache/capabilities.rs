//! Tests of the capabilities of a cache.

use tower_chat_cache::CachingStore;
use tower_chat_core::{
    MemoryStore,
    store::{self, HistoryStore},
};

/// A store without capabilities.
struct Bare(MemoryStore);

impl store::author::StoreWrapper for Bare {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }
}

#[test]
fn a_cache_has_exactly_the_capabilities_of_its_inner_store() {
    let store = CachingStore::new(Bare(MemoryStore::new()));
    assert!(store.journal().is_none() && store.directory().is_none());
    assert!(store.tool_calls().is_none() && store.maintenance().is_none());
    assert!(store.summaries().is_none());

    let store = CachingStore::new(MemoryStore::new());
    assert!(store.journal().is_some() && store.directory().is_some());
    assert!(store.tool_calls().is_some());
    // If the cache returned the `Maintenance` capability of the inner store, a copy, a prune or a
    // rewrite would not update the entry in the cache.
    let own = store.maintenance().map(std::ptr::from_ref).map(<*const _>::cast::<()>);
    assert_eq!(own, Some(std::ptr::from_ref(&store).cast()));
    let own = store.summaries().map(std::ptr::from_ref).map(<*const _>::cast::<()>);
    assert_eq!(own, Some(std::ptr::from_ref(&store).cast()));
}
