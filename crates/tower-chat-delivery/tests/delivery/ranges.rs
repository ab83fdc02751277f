//! Tests loads of a part of a conversation.

use tower_chat::MemoryStore;
use tower_chat_delivery::{DetachedRunsLayer, MemoryUpdateLog};
use tower_chat_testkit::{FaultyStore, store_contract};

#[tokio::test]
async fn a_store_that_erases_updates_loads_only_the_selected_messages() {
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let store = runs.erasing_store(FaultyStore::new(MemoryStore::new()));
    assert!(store_contract::loads_ranges(&store).await);
}
