//! The contract of stores, for a cache that wraps a store.
//!
//! The whole contract is tested over the memory store, with the two settings that have separate
//! code: a cache that reads the head before it returns an entry, and a cache that does not. Three
//! other caches share all of that code: a cache over SQLite, a small cache, and a cache that reads
//! the head only after some time. These three are tested only with the tests that detect a stale or
//! missing cache entry.

use std::time::Duration;

use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::MemoryStore;
use tower_chat_sqlite::SqliteStore;

fn never() -> CacheOptions {
    CacheOptions::new().with_revalidation(Revalidation::Never)
}

/// The tests that detect a cache entry that is stale, incomplete, or evicted between two
/// operations.
macro_rules! entry_tests {
    ($($open:tt)*) => {
        tower_chat_testkit::store_promises!(
            $($open)*;
            what_is_appended_is_returned_in_order
            a_write_at_another_revision_is_a_conflict_and_stores_nothing
            a_repeated_write_stores_nothing_twice
            a_service_id_is_set_kept_and_cleared
            large_messages_and_writes_are_stored
            a_load_sees_what_was_submitted_before_it
            reads_that_are_dropped_leave_no_trace
            a_deleted_conversation_is_gone_and_its_key_can_be_used_again
            of_concurrent_writers_to_one_conversation_exactly_one_wins
            writers_to_different_conversations_do_not_disturb_each_other
            readers_never_see_part_of_a_write
            readers_see_messages_and_rows_of_a_write_together
            staged_messages_are_invisible_to_readers
            a_commit_shows_the_whole_run_at_once
            a_discarded_run_leaves_nothing
            only_the_open_run_writes
            of_two_that_take_a_run_over_one_holds_it
            calls_that_wait_for_approval_come_with_the_head
            a_fork_sees_what_was_submitted_before_it
            a_revision_from_before_a_prune_conflicts
            readers_see_a_prune_at_one_moment
            a_prune_sees_what_was_submitted_before_it
            a_rewrite_sees_what_was_submitted_before_it
            the_directory_sees_what_was_submitted_before
            readings_dropped_at_any_await_change_nothing
            a_prune_dropped_at_any_await_is_done_or_not
            an_added_summary_is_in_force
            the_summary_in_force_is_removed
            a_rewrite_deletes_the_summaries_of_its_messages
            staged_messages_are_not_covered
            writes_and_summaries_do_not_disturb_each_other
            an_addition_dropped_at_any_await_is_done_or_not
            generated_summaries_are_decided_as_in_memory
        );
    };
}

mod revalidated_always {
    use super::*;

    tower_chat_testkit::store_contract!(
        CachingStore::new(MemoryStore::new());
        one_runtime: "a cache starts no task"
    );
}

mod revalidated_never {
    use super::*;

    tower_chat_testkit::store_contract!(
        CachingStore::with_options(MemoryStore::new(), never());
        one_runtime: "a cache starts no task";
        heavy: "revalidated_always shows it"
    );
}

mod revalidated_after_a_moment {
    use super::*;

    entry_tests!(CachingStore::with_options(
        MemoryStore::new(),
        never().with_revalidation(Revalidation::After(Duration::from_micros(50))),
    ));
}

/// A cache that is so small that an entry is evicted soon after its insertion.
mod small {
    use super::*;

    entry_tests!(CachingStore::with_options(MemoryStore::new(), never().with_max_bytes(2_000)));
}

mod over_sqlite {
    use super::*;

    entry_tests!(
        let folder = tempfile::tempdir().unwrap();
        CachingStore::new(SqliteStore::open(folder.path().join("chat.db")).await.unwrap())
    );
}
