//! Tests that the contract finds residual data, and fails if the function for the bytes of a store
//! returns no data.

use std::sync::{Arc, Mutex};

use tower_chat_core::{
    MemoryStore,
    store::{Directory, HistoryStore},
};
use tower_chat_testkit::store_contract::{check_residual_data, searchable};

#[test]
#[should_panic(expected = "can be searched")]
fn the_check_of_residual_data_fails_if_its_search_finds_no_stored_data() {
    check_residual_data(|| async {
        (searchable(MemoryStore::new(), |_| async { Vec::new() }), ())
    });
}

#[test]
#[should_panic(expected = "is still stored after it was pruned")]
fn the_check_of_residual_data_fails_if_a_store_keeps_pruned_data() {
    // This store keeps all data that was ever stored, except staged data.
    let kept = Arc::new(Mutex::new(String::new()));
    check_residual_data(|| async {
        let residual_data = move |store: &MemoryStore| {
            let (store, kept) = (store.clone(), kept.clone());
            async move {
                for key in store.list("scope", None, 10).await.unwrap() {
                    let history = store.load(&key).await.unwrap();
                    kept.lock().unwrap().push_str(&format!("{key} {history:?}"));
                }
                kept.lock().unwrap().clone().into_bytes()
            }
        };
        (searchable(MemoryStore::new(), residual_data), ())
    });
}
