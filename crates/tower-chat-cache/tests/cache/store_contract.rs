//! A store with a cache around it keeps every promise of a store.

use std::time::Duration;

use tower_chat_cache::{CacheOptions, CachingStore, Revalidation, WriteBehindStore};
use tower_chat_core::MemoryStore;
use tower_chat_testkit::FaultyStore;

fn never() -> CacheOptions {
    CacheOptions::new().with_revalidation(Revalidation::Never)
}

mod memory_never {
    use super::*;

    tower_chat_testkit::store_contract!(CachingStore::with_options(MemoryStore::new(), never());
        heavy: "memory_always shows it"
    );
}

mod memory_always {
    use super::*;

    tower_chat_testkit::store_contract!(CachingStore::new(MemoryStore::new()));
}

mod memory_after {
    use super::*;

    tower_chat_testkit::store_contract!(CachingStore::with_options(
        MemoryStore::new(),
        never().with_revalidation(Revalidation::After(Duration::from_micros(50))),
    );
        heavy: "memory_always shows it"
    );
}

/// So small that nothing is kept for long.
mod memory_small {
    use super::*;

    tower_chat_testkit::store_contract!(CachingStore::with_options(
        MemoryStore::new(),
        never().with_max_bytes(2_000),
    );
        heavy: "memory_always shows it"
    );
}

mod faulty_inside {
    use super::*;

    tower_chat_testkit::store_contract!(CachingStore::with_options(
        FaultyStore::new(MemoryStore::new()),
        never(),
    );
        heavy: "memory_always shows it"
    );
}

mod faulty_outside {
    use super::*;

    tower_chat_testkit::store_contract!(FaultyStore::new(CachingStore::with_options(
        MemoryStore::new(),
        never(),
    ));
        heavy: "memory_always shows it"
    );
}

mod sqlite_never {
    use tower_chat_sqlite::SqliteStore;

    use super::*;

    tower_chat_testkit::store_contract!(
            let folder = tempfile::tempdir().unwrap();
            CachingStore::with_options(
                SqliteStore::open(folder.path().join("chat.db")).await.unwrap(),
                never(),
            );
            heavy: "memory_always shows it"
    );
}

mod sqlite_always {
    use tower_chat_sqlite::SqliteStore;

    use super::*;

    tower_chat_testkit::store_contract!(
            let folder = tempfile::tempdir().unwrap();
            CachingStore::new(SqliteStore::open(folder.path().join("chat.db")).await.unwrap());
            heavy: "memory_always shows it"
    );
}

/// Nothing is stored before somebody asks.
mod write_behind_for_ever {
    use super::*;

    tower_chat_testkit::store_contract!(
        WriteBehindStore::new(MemoryStore::new(), Duration::from_secs(100_000));
        heavy: "write_behind_for_a_moment shows it"
    );
}

mod write_behind_for_a_moment {
    use super::*;

    tower_chat_testkit::store_contract!(WriteBehindStore::new(MemoryStore::new(), Duration::ZERO));
}

mod write_behind_in_a_cache {
    use super::*;

    tower_chat_testkit::store_contract!(
        CachingStore::with_options(
            WriteBehindStore::new(MemoryStore::new(), Duration::from_millis(1)),
            never(),
        );
        heavy: "write_behind_for_a_moment shows it"
    );
}
