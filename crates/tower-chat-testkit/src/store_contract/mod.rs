//! Tests for every rule of the contract of a [`HistoryStore`].
//!
//! One line in the crate of a store defines all tests, each for a runtime with one thread and for a
//! runtime with several threads:
//!
//! ```
//! mod contract {
//!     tower_chat_testkit::store_contract!(tower_chat_core::MemoryStore::new());
//! }
//! # fn main() {}
//! ```
//!
//! The expression opens a new, empty store, and may contain `await`. A value that must live as long
//! as the store, such as a temporary folder, is bound before the expression:
//!
//! ```
//! # struct Folder;
//! # impl Folder { fn new() -> Self { Self } }
//! # async fn open(_: &Folder) -> tower_chat_core::MemoryStore { Default::default() }
//! mod contract {
//!     # use super::{Folder, open};
//!     tower_chat_testkit::store_contract!(let folder = Folder::new(); open(&folder).await);
//! }
//! # fn main() {}
//! ```
//!
//! For a store whose data is outside of the process, pass a closure as `residual_data:`. The
//! closure receives the store and returns all bytes of the store's files or tables. A test searches
//! these bytes for data that were deleted: with a conversation, as the oldest runs of a
//! conversation, or with a discarded run. Without the closure, this test is ignored.
//!
//! The slow tests, with a message of 16 MB and with a conversation of 20,000 messages, run on one
//! runtime only. If a store is tested with several settings, pass `heavy: "reason"` for some of the
//! settings. The slow tests are then ignored with this reason.
//!
//! ```
//! mod contract {
//!     tower_chat_testkit::store_contract!(
//!         tower_chat_core::MemoryStore::new();
//!         heavy: "this example is to be short"
//!     );
//! }
//! # fn main() {}
//! ```
//!
//! The option `one_runtime: "reason"` omits the runtime with one thread. Use it for a store that
//! wraps another store, and for further settings of a store. If a setting shares all code with a
//! setting that is tested completely, use [`store_promises!`](crate::store_promises), which runs
//! only the tests that it names.
//!
//! If a store lacks a [capability](tower_chat_core::store::Capability), omit its tests with
//! `directory: "reason"`, `maintenance: "reason"`, `journal: "reason"`, `tool_calls: "reason"` or
//! `summaries: "reason"`. These options must be at the end, in this order. Other tests skip the
//! steps that need the capability. A store without the capability `Journal` must refuse staged
//! writes (writes that readers must not see until their run is committed).
//!
//! Each test is also a function of this module, which a crate can call for a store that needs a
//! special setup.
//!
//! [`HistoryStore`]: tower_chat_core::store::HistoryStore

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod appending;
mod claims;
mod directory;
mod directory_queries;
mod dropping;
mod fixture;
mod forks;
mod generated;
mod generated_forks;
mod generated_summaries;
mod heavy;
mod keys;
mod leases;
mod lifecycle;
mod pruned_record;
mod pruning;
mod races;
mod ranges;
mod record;
mod record_queries;
mod residual_data;
mod rows;
mod scopes;
mod sealed;
mod shared_summaries;
mod staging;
mod summaries;

use std::{future::Future, sync::Arc};

use tokio::runtime::Builder;
#[doc(hidden)]
pub use tower_chat_core::store::{Capability, HistoryStore};

pub use self::{
    appending::*, claims::*, directory::*, directory_queries::*, dropping::*, forks::*,
    generated::*, generated_forks::*, generated_summaries::*, heavy::*, keys::*, leases::*,
    lifecycle::*, pruned_record::*, pruning::*, races::*, ranges::*, record::*, record_queries::*,
    residual_data::*, rows::*, scopes::*, sealed::*, shared_summaries::*, staging::*, summaries::*,
};

/// The type in which a test receives the store.
pub type Store = Arc<dyn HistoryStore>;

/// The tokio runtime on which a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// A runtime with a single thread, on which the test runs too.
    OneThread,
    /// A runtime with four worker threads. The test runs on another thread.
    SeveralThreads,
}

/// Opens a store with `open`, and runs a test with this store on a new runtime. `open` also returns
/// a guard, which is dropped after the runtime has ended.
///
/// # Panics
///
/// Panics if the test fails.
pub fn check<S, Guard, Open, Promise>(
    runtime: Runtime,
    open: impl FnOnce() -> Open,
    promise: impl FnOnce(Store) -> Promise + Send + 'static,
) where
    S: HistoryStore,
    Open: Future<Output = (S, Guard)>,
    Promise: Future<Output = ()> + Send + 'static,
{
    let mut builder = match runtime {
        Runtime::OneThread => Builder::new_current_thread(),
        Runtime::SeveralThreads => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(4).enable_all().build().expect("a runtime");
    let guard = runtime.block_on(async {
        let (store, guard) = open().await;
        let store: Store = Arc::new(store);
        match tokio::spawn(promise(store)).await {
            Ok(()) => guard,
            Err(failure) => std::panic::resume_unwind(failure.into_panic()),
        }
    });
    drop(runtime);
    drop(guard);
}

/// Checks that a store has exactly the capabilities whose tests run. Also checks that a store
/// without the capability `Journal` refuses staged writes.
///
/// # Panics
///
/// Panics if the store has other capabilities, or accepts a staged write without `Journal`.
#[doc(hidden)]
pub fn check_capabilities<S, Guard, Open>(
    open: impl FnOnce() -> Open,
    expected: [(bool, Capability); 5],
) where
    S: HistoryStore,
    Open: Future<Output = (S, Guard)>,
{
    check(Runtime::SeveralThreads, open, async move |store: Store| {
        for (runs, capability) in expected {
            assert_eq!(fixture::has(&store, capability), runs, "{capability}");
        }
        if !fixture::has(&store, Capability::Journal) {
            staging::a_staged_write_is_refused(&store).await;
        }
    });
}

/// The tests as functions that return boxed futures. These functions are compiled once in this
/// crate, instead of in the crate of each store.
#[doc(hidden)]
pub mod boxed {
    use futures_util::future::BoxFuture;

    use super::Store;

    macro_rules! boxed {
        (() $($promise:ident)*) => { $(
            pub fn $promise(store: Store) -> BoxFuture<'static, ()> {
                Box::pin(super::$promise(store))
            }
        )* };
    }
    crate::__every_promise! { boxed () }
    crate::__heavy_promises! { boxed () }
    crate::__directory_promises! { boxed () }
    crate::__maintenance_promises! { boxed () }
    crate::__journal_promises! { boxed () }
    crate::__tool_call_promises! { boxed () }
    crate::__summary_promises! { boxed () }
}

/// Defines the tests of the contract of stores. [The module](mod@crate::store_contract) describes
/// the options.
#[macro_export]
macro_rules! store_contract {
    (
        let $guard:ident = $setup:expr; $open:expr
        $(; residual_data: $residual_data:expr)?
        $(; one_runtime: $one_runtime:literal)?
        $(; heavy: $reason:literal)?
        $(; directory: $no_directory:literal)?
        $(; maintenance: $no_maintenance:literal)?
        $(; journal: $no_journal:literal)?
        $(; tool_calls: $no_tool_calls:literal)?
        $(; summaries: $no_summaries:literal)?
        $(,)?
    ) => {
        $crate::__open_store! { let $guard = $setup; $open }
        $crate::__every_promise! { test () ($($one_runtime)?) }
        $crate::__heavy_promises! { test ($($reason)?) ("each takes long") }
        $crate::__directory_promises! { test ($($no_directory)?) ($($one_runtime)?) }
        $crate::__maintenance_promises! { test ($($no_maintenance)?) ($($one_runtime)?) }
        $crate::__journal_promises! { test ($($no_journal)?) ($($one_runtime)?) }
        $crate::__tool_call_promises! { test ($($no_tool_calls)?) ($($one_runtime)?) }
        $crate::__summary_promises! { test ($($no_summaries)?) ($($one_runtime)?) }
        #[test]
        fn the_store_has_the_capabilities_whose_tests_run() {
            let runs = |reasons: &[&str]| reasons.is_empty();
            $crate::store_contract::check_capabilities(__open, [
                (runs(&[$($no_journal)?]), $crate::store_contract::Capability::Journal),
                (runs(&[$($no_directory)?]), $crate::store_contract::Capability::Directory),
                (runs(&[$($no_tool_calls)?]), $crate::store_contract::Capability::ToolCallQueries),
                (runs(&[$($no_maintenance)?]), $crate::store_contract::Capability::Maintenance),
                (runs(&[$($no_summaries)?]), $crate::store_contract::Capability::Summaries),
            ]);
        }
        $crate::__residual_data! { ($guard, $setup, $open) $($residual_data)? }
    };
    (
        $open:expr
        $(; residual_data: $residual_data:expr)?
        $(; one_runtime: $one_runtime:literal)?
        $(; heavy: $reason:literal)?
        $(; directory: $no_directory:literal)?
        $(; maintenance: $no_maintenance:literal)?
        $(; journal: $no_journal:literal)?
        $(; tool_calls: $no_tool_calls:literal)?
        $(; summaries: $no_summaries:literal)?
        $(,)?
    ) => {
        $crate::store_contract! {
            let _guard = (); $open
            $(; residual_data: $residual_data)?
            $(; one_runtime: $one_runtime)?
            $(; heavy: $reason)?
            $(; directory: $no_directory)?
            $(; maintenance: $no_maintenance)?
            $(; journal: $no_journal)?
            $(; tool_calls: $no_tool_calls)?
            $(; summaries: $no_summaries)?
        }
    };
}

/// Defines only the named tests of the contract, on a runtime with several threads. Use this macro
/// for a setting of a store whose code another setting tests with the whole contract.
///
/// ```
/// mod part_of_the_contract {
///     tower_chat_testkit::store_promises!(
///         tower_chat_core::MemoryStore::new();
///         a_load_sees_what_was_submitted_before_it
///         readers_never_see_part_of_a_write
///     );
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! store_promises {
    (let $guard:ident = $setup:expr; $open:expr; $($promise:ident)+) => {
        $crate::__open_store! { let $guard = $setup; $open }
        $crate::__promise_tests! { () ("the whole contract runs on both in another setting") $($promise)+ }
    };
    ($open:expr; $($promise:ident)+) => {
        $crate::store_promises! { let _guard = (); $open; $($promise)+ }
    };
}

/// Defines the function with which each test opens a store.
#[doc(hidden)]
#[macro_export]
macro_rules! __open_store {
    (let $guard:ident = $setup:expr; $open:expr) => {
        fn __open() -> impl ::std::future::Future<
            Output = (impl $crate::store_contract::HistoryStore, impl Sized),
        > {
            async {
                let $guard = $setup;
                let store = $open;
                (store, $guard)
            }
        }
    };
}

/// Defines a module with the tests of each rule. If the first pair of parentheses contains a
/// reason, cargo ignores the tests. If the second pair contains a reason, only the runtime with
/// several threads is used.
#[doc(hidden)]
#[macro_export]
macro_rules! __promise_tests {
    (@on $runtime:ident $name:ident ($($ignored:literal)?) $promise:ident) => {
        #[test]
        $(#[ignore = $ignored])?
        fn $name() {
            use $crate::store_contract::{Runtime, boxed, check};
            check(Runtime::$runtime, super::__open, boxed::$promise as fn(_) -> _);
        }
    };
    (@one $ignored:tt () $promise:ident) => {
        mod $promise {
            $crate::__promise_tests! { @on OneThread on_one_thread $ignored $promise }
            $crate::__promise_tests! { @on SeveralThreads on_several_threads $ignored $promise }
        }
    };
    (@one $ignored:tt ($one_runtime:literal) $promise:ident) => {
        mod $promise {
            $crate::__promise_tests! { @on SeveralThreads on_several_threads $ignored $promise }
        }
    };
    ($ignored:tt $one_runtime:tt $($promise:ident)*) => { $(
        $crate::__promise_tests! { @one $ignored $one_runtime $promise }
    )* };
}

/// Lists the tests of the capability `Directory` for `boxed` or `__promise_tests`.
#[doc(hidden)]
#[macro_export]
macro_rules! __directory_promises {
    (boxed ()) => { $crate::__directory_promises! { @list [()] boxed } };
    (test $ignored:tt $one_runtime:tt) => {
        $crate::__directory_promises! { @list [$ignored $one_runtime] $crate::__promise_tests }
    };
    (@list [$($options:tt)*] $($macro:tt)*) => {
        $($macro)*! { $($options)*
            conversations_are_listed_in_the_byte_order_of_their_ids
            the_directory_has_a_conversation_from_its_first_write_on
            a_run_begins_when_its_request_arrived
            a_write_tells_when_it_was_made_and_which_tools_it_asks_for
            usage_is_added_up_once
            usage_stops_at_the_largest_count
            staged_runs_are_in_the_directory_at_once
            a_discarded_run_is_taken_off_the_count
            a_prune_leaves_counts_and_usage
            a_fork_has_the_description_and_has_used_nothing
            a_deleted_conversation_leaves_the_directory
            the_directory_tells_what_continues
            a_description_is_set_by_who_knows_its_version
            changes_of_a_description_are_merged
            messages_are_paged_from_the_end
            the_directory_sees_what_was_submitted_before
            a_closed_store_keeps_its_directory
            conversations_are_listed_by_their_last_activity
            conversations_are_found_by_times_and_metadata
            branches_are_found_by_their_parent
            a_parent_is_set_by_the_first_write
            usage_is_grouped_as_a_query_asks
            runs_are_listed_newest_first
        }
    };
}

/// Lists the tests of the capability `Maintenance` for `boxed` or `__promise_tests`.
#[doc(hidden)]
#[macro_export]
macro_rules! __maintenance_promises {
    (boxed ()) => { $crate::__maintenance_promises! { @list [()] boxed } };
    (test $ignored:tt $one_runtime:tt) => {
        $crate::__maintenance_promises! { @list [$ignored $one_runtime] $crate::__promise_tests }
    };
    (@list [$($options:tt)*] $($macro:tt)*) => {
        $($macro)*! { $($options)*
            a_fork_has_what_readers_see_and_a_life_of_its_own
            a_fork_does_not_wait_for_approvals
            a_fork_has_nothing_that_is_staged
            a_fork_makes_nothing_of_nothing_and_replaces_nothing
            a_fork_sees_what_was_submitted_before_it
            a_fork_ends_between_turns
            a_fork_keeps_calls_with_their_results
            a_fork_of_a_pruned_conversation_ends_between_turns
            a_fork_ends_before_an_open_run
            generated_forks_end_as_in_memory
            the_oldest_runs_are_pruned_whole
            the_last_run_is_never_pruned
            a_range_has_no_pruned_messages
            runs_are_pruned_by_the_time_at_which_they_were_made
            a_run_that_was_continued_is_pruned_whole
            a_revision_from_before_a_prune_conflicts
            a_run_that_is_open_or_under_way_is_in_the_way
            a_pruned_conversation_can_be_staged_to
            a_prune_reaches_one_conversation_alone
            a_pruned_conversation_is_copied_as_it_is_left
            readers_see_a_prune_at_one_moment
            a_prune_sees_what_was_submitted_before_it
            rows_are_pruned_with_their_messages
            a_call_is_not_pruned_without_its_result
            calls_that_wait_are_not_pruned
            a_fork_dropped_at_any_await_is_done_or_not
            a_prune_dropped_at_any_await_is_done_or_not
            scopes_are_listed_in_byte_order
            a_scope_is_there_while_it_has_a_conversation
            a_list_of_scopes_sees_what_was_submitted_before_it
            rows_are_what_readers_see
            rows_of_a_pruned_conversation_have_their_numbers
            a_rewrite_keeps_numbers_and_ids
            a_rewrite_at_another_revision_is_a_conflict
            a_rewrite_is_done_whole_or_not_at_all
            a_rewrite_changes_the_record
            a_rewrite_sets_counts_of_the_directory
            an_open_run_is_not_rewritten
            a_rewrite_sees_what_was_submitted_before_it
            a_rewrite_dropped_at_any_await_is_done_or_not
        }
    };
}

/// Lists the tests of the capability `Journal` for `boxed` or `__promise_tests`.
#[doc(hidden)]
#[macro_export]
macro_rules! __journal_promises {
    (boxed ()) => { $crate::__journal_promises! { @list [()] boxed } };
    (test $ignored:tt $one_runtime:tt) => {
        $crate::__journal_promises! { @list [$ignored $one_runtime] $crate::__promise_tests }
    };
    (@list [$($options:tt)*] $($macro:tt)*) => {
        $($macro)*! { $($options)*
            staged_messages_are_invisible_to_readers
            a_range_has_only_visible_messages
            a_commit_shows_the_whole_run_at_once
            a_discarded_run_leaves_nothing
            a_conversation_that_was_discarded_whole_is_not_listed
            nothing_late_matches_after_a_discard
            a_repeated_staged_write_stores_nothing_twice
            only_the_open_run_writes
            a_discard_without_an_open_run_is_a_conflict
            a_staged_service_id_is_set_by_the_commit
            partial_text_stays_with_the_open_run
            rows_of_calls_that_are_seen_are_put_at_once
            a_deleted_conversation_takes_its_open_run_along
            an_open_run_knows_its_lease
            a_later_attempt_fences_off_those_before_it
            of_two_that_take_a_run_over_one_holds_it
            the_first_write_of_an_attempt_is_its_own
            a_run_in_one_write_is_its_own
            attempts_in_one_write_follow_each_other
            a_run_that_was_taken_over_and_ended_stays_ended
            open_runs_are_listed_by_scope
            an_open_run_claims_calls_that_are_seen
        }
    };
}

/// Lists the tests of queries for tool calls for `boxed` or `__promise_tests`.
#[doc(hidden)]
#[macro_export]
macro_rules! __tool_call_promises {
    (boxed ()) => { $crate::__tool_call_promises! { @list [()] boxed } };
    (test $ignored:tt $one_runtime:tt) => {
        $crate::__tool_call_promises! { @list [$ignored $one_runtime] $crate::__promise_tests }
    };
    (@list [$($options:tt)*] $($macro:tt)*) => {
        $($macro)*! { $($options)*
            calls_are_found_by_everything_a_query_can_name
            tool_calls_are_counted_per_tool
            calls_come_in_the_order_of_conversation_message_and_position
            questions_never_cross_a_scope
            a_question_for_nothing_finds_nothing
            any_number_of_calls_and_messages_can_be_asked_for
            a_row_that_cannot_be_read_does_not_hide_the_others
        }
    };
}

/// Lists the tests of the capability `Summaries` for `boxed` or `__promise_tests`.
#[doc(hidden)]
#[macro_export]
macro_rules! __summary_promises {
    (boxed ()) => { $crate::__summary_promises! { @list [()] boxed } };
    (test $ignored:tt $one_runtime:tt) => {
        $crate::__summary_promises! { @list [$ignored $one_runtime] $crate::__promise_tests }
    };
    (@list [$($options:tt)*] $($macro:tt)*) => {
        $($macro)*! { $($options)*
            an_added_summary_is_in_force
            a_summary_of_other_messages_is_refused
            a_summary_covers_more_than_the_one_in_force
            a_repeated_addition_stores_nothing_twice
            the_summary_in_force_is_removed
            a_rewrite_deletes_the_summaries_of_its_messages
            a_prune_leaves_the_summary_in_force
            a_deleted_conversation_takes_its_summaries_along
            a_fork_has_no_summaries
            staged_messages_are_not_covered
            writes_and_summaries_do_not_disturb_each_other
            of_concurrent_summaries_the_longest_is_in_force
            a_summary_sees_what_was_submitted_before_it
            an_addition_dropped_at_any_await_is_done_or_not
            generated_summaries_are_decided_as_in_memory
        }
    };
}

/// Lists the slow tests for `boxed` or `__promise_tests`.
#[doc(hidden)]
#[macro_export]
macro_rules! __heavy_promises {
    (boxed ()) => { $crate::__heavy_promises! { @list [()] boxed } };
    (test $ignored:tt $one_runtime:tt) => {
        $crate::__heavy_promises! { @list [$ignored $one_runtime] $crate::__promise_tests }
    };
    (@list [$($options:tt)*] $($macro:tt)*) => {
        $($macro)*! { $($options)*
            a_message_of_16_megabytes_is_stored
            a_conversation_of_20_000_messages_is_stored
        }
    };
}

/// Defines the test that searches all bytes of a store for deleted data.
#[doc(hidden)]
#[macro_export]
macro_rules! __residual_data {
    (($guard:ident, $setup:expr, $open:expr)) => {
        #[test]
        #[ignore = "needs the bytes of the store: see `residual_data:` of store_contract!"]
        fn deleted_data_is_not_found_in_the_store() {}
    };
    (($guard:ident, $setup:expr, $open:expr) $residual_data:expr) => {
        #[test]
        fn deleted_data_is_not_found_in_the_store() {
            $crate::store_contract::check_residual_data(|| async {
                let $guard = $setup;
                let store = $open;
                ($crate::store_contract::searchable(store, $residual_data), $guard)
            });
        }
    };
}

/// Lists, for `boxed` or `__promise_tests`, the tests that every store must pass.
#[doc(hidden)]
#[macro_export]
macro_rules! __every_promise {
    (boxed ()) => { $crate::__every_promise! { @list [()] boxed } };
    (test $ignored:tt $one_runtime:tt) => {
        $crate::__every_promise! { @list [$ignored $one_runtime] $crate::__promise_tests }
    };
    (@list [$($options:tt)*] $($macro:tt)*) => {
        $($macro)*! { $($options)*
            an_unknown_conversation_is_absent_and_empty
            what_is_appended_is_returned_in_order
            loaded_messages_carry_their_ids
            messages_are_returned_as_they_were
            a_write_at_another_revision_is_a_conflict_and_stores_nothing
            a_repeated_write_stores_nothing_twice
            equal_messages_of_different_writes_are_all_stored
            a_submission_stops_at_the_first_write_that_fails
            a_service_id_is_set_kept_and_cleared
            a_write_without_messages_makes_a_conversation
            large_messages_and_writes_are_stored
            a_load_sees_what_was_submitted_before_it
            submissions_are_stored_in_the_order_they_were_made
            a_dropped_ticket_cancels_nothing
            writes_can_be_submitted_where_nothing_can_be_awaited
            flush_waits_for_everything_submitted
            a_closed_store_keeps_what_it_has_and_takes_nothing_more
            slots_that_are_dropped_are_free_again
            reads_that_are_dropped_leave_no_trace
            a_deleted_conversation_is_gone_and_its_key_can_be_used_again
            keys_that_look_alike_are_different_conversations
            of_concurrent_writers_to_one_conversation_exactly_one_wins
            writers_to_different_conversations_do_not_disturb_each_other
            readers_never_see_part_of_a_write
            a_tool_call_is_recorded_with_the_write_of_its_message
            calls_are_selected_by_message_and_status
            a_write_that_is_refused_records_nothing
            a_later_row_replaces_what_was_known_of_a_call
            a_repeated_write_does_not_bring_older_rows_back
            results_are_returned_from_messages_and_from_the_record
            rows_can_be_written_without_messages
            rows_of_messages_that_are_not_there_are_no_rows
            calls_that_wait_for_approval_have_their_position_in_the_batch
            times_are_kept_to_the_millisecond
            a_question_sees_what_was_submitted_before_it
            a_deleted_conversation_takes_its_record_along
            readers_see_messages_and_rows_of_a_write_together
            of_two_claims_to_a_call_one_holds
            only_calls_that_wait_can_be_claimed
            calls_that_wait_for_approval_come_with_the_head
            messages_keep_their_order_when_clocks_are_set_back
            readings_dropped_at_any_await_change_nothing
            a_ticket_dropped_at_any_await_cancels_nothing
            a_deletion_dropped_at_any_await_is_done_or_not
            a_close_dropped_at_any_await_loses_nothing
            a_range_is_the_end_of_the_history
            another_value_loads_the_whole_history
            a_write_sets_the_range_once
            generated_writes_are_decided_as_in_memory
        }
    };
}
