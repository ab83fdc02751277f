//! Tests the contract of stores with a [`MemoryStore`], and with a [`FaultyStore`] that has no
//! faults.

mod memory {
    tower_chat_testkit::store_contract!(tower_chat_core::MemoryStore::new());
}

mod faulty {
    use tower_chat_core::MemoryStore;
    use tower_chat_testkit::FaultyStore;

    tower_chat_testkit::store_contract!(
        let inner = MemoryStore::new(); FaultyStore::new(inner.clone());
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests"
    );
}
