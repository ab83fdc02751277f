//! The contract of update logs: a test for every rule of [`UpdateLog`]. This module is for authors
//! of an update log.
//!
//! One macro call in the crate of a log defines all tests. The expression in the macro call opens a
//! new, empty log with the given [`UpdateLogOptions`], and may use `await`. If a value must live as
//! long as the log, such as a temporary folder, bind the value with `let` before the expression.
//!
//! ```
//! mod contract {
//!     use tower_chat_delivery::MemoryUpdateLog;
//!     tower_chat_delivery::update_log_contract!(options => MemoryUpdateLog::with_options(options));
//! }
//! # fn main() {}
//! ```

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod appending;
mod ending;
mod erasing;
mod reading;

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::runtime::Builder;
use tower_chat_layers::{Clock, ConversationKey, RunId};

pub use self::{appending::*, ending::*, erasing::*, reading::*};
use crate::{
    RunEnd, RunKey, StoredUpdate, UpdateLog, UpdateLogOptions, UpdatePage, UpdatePosition,
};

/// A clock that a test sets.
///
/// ```
/// use std::time::Duration;
/// use tower_chat_delivery::contract::ManualClock;
/// let manual = ManualClock::new();
/// let before = manual.clock().now();
/// manual.advance(Duration::from_secs(5));
/// assert_eq!(manual.clock().now(), before + Duration::from_secs(5));
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<SystemTime>>);

impl ManualClock {
    /// Creates a clock at a fixed time.
    #[allow(clippy::new_without_default, reason = "a clock has no natural default")]
    pub fn new() -> Self {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        Self(Arc::new(Mutex::new(start)))
    }

    /// Advances the time.
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// Returns the clock for an [`UpdateLogOptions`].
    pub fn clock(&self) -> Clock {
        let now = self.0.clone();
        Clock::new(move || *now.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The log under test, and its clock.
#[derive(Clone)]
pub struct Subject {
    /// The log.
    pub log: Arc<dyn UpdateLog>,
    /// The clock of the log.
    pub clock: ManualClock,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// The retention time of the log under test: how long updates can be read after the end of their
/// run.
pub const RETENTION: Duration = Duration::from_secs(3600);
/// The maximum number of runs in the log under test.
pub const MAX_RUNS: u64 = 20;
/// The maximum number of updates of a run in the log under test.
pub const MAX_UPDATES: u64 = 50;
/// The maximum size of all updates of a run in the log under test, in bytes.
pub const MAX_BYTES: u64 = 10_000;

/// The duration of each lease in the tests. A process that does not renew its lease in this time
/// loses its run.
const LEASE: Duration = Duration::from_secs(15);

/// Executes one test with a log that `open` opens.
///
/// `open` also returns a value that is dropped after the log, such as a temporary folder.
///
/// # Panics
///
/// Panics if the test fails.
pub fn check<L, Guard, Open, Test>(
    open: impl FnOnce(UpdateLogOptions) -> Open,
    test: impl FnOnce(Subject) -> Test,
) where
    L: UpdateLog,
    Open: Future<Output = (L, Guard)>,
    Test: Future<Output = ()>,
{
    let clock = ManualClock::new();
    let options = UpdateLogOptions::default()
        .with_retention(RETENTION)
        .with_max_runs(MAX_RUNS)
        .with_max_updates_per_run(MAX_UPDATES)
        .with_max_bytes_per_run(MAX_BYTES)
        .with_clock(clock.clock());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let guard = runtime.block_on(async {
        let (log, guard) = open(options).await;
        test(Subject { log: Arc::new(log), clock }).await;
        guard
    });
    drop(runtime);
    drop(guard);
}

impl Subject {
    async fn begin(&self, run: &RunKey, attempt: u32) {
        self.log.begin(run, attempt, LEASE).await.expect("the attempt begins");
    }

    async fn append(&self, run: &RunKey, first: (u32, u32), texts: &[&str]) {
        let appended = self.log.append(run, at(first), &stored(texts), None).await;
        appended.expect("the updates are appended");
    }

    async fn close(&self, run: &RunKey, attempt: u32) {
        let first = UpdatePosition::new(attempt, 0);
        let closed = self.log.append(run, first, &[], Some(&RunEnd::Completed)).await;
        closed.expect("the run is closed");
    }

    async fn page(&self, run: &RunKey, after: UpdatePosition, limit: usize) -> UpdatePage {
        self.log.read(run, after, limit).await.expect("the log is read")
    }

    /// Returns all updates of a run, each as its position and its text.
    async fn all(&self, run: &RunKey) -> Vec<((u32, u32), String)> {
        sketch(&self.page(run, UpdatePosition::START, 1000).await)
    }
}

fn run_in(scope: &str, id: &str) -> RunKey {
    RunKey::new(ConversationKey::new(scope, id), RunId::new())
}

fn at((attempt, index): (u32, u32)) -> UpdatePosition {
    UpdatePosition::new(attempt, index)
}

fn stored(texts: &[&str]) -> Vec<StoredUpdate> {
    texts.iter().map(|text| StoredUpdate::new(*text)).collect()
}

fn sketch(page: &UpdatePage) -> Vec<((u32, u32), String)> {
    let updates = page.updates.iter();
    updates
        .map(|it| ((it.position.attempt, it.position.index), it.update.data().to_owned()))
        .collect()
}

fn expected(updates: &[((u32, u32), &str)]) -> Vec<((u32, u32), String)> {
    updates.iter().map(|(position, text)| (*position, (*text).to_owned())).collect()
}

/// Defines the tests of the contract of update logs. See [the module](mod@crate::contract).
#[macro_export]
macro_rules! update_log_contract {
    ($options:ident => $open:expr) => {
        $crate::update_log_contract! { let _guard = (); $options => $open }
    };
    (let $guard:ident = $setup:expr; $options:ident => $open:expr) => {
        async fn __open(
            $options: $crate::UpdateLogOptions,
        ) -> (impl $crate::UpdateLog, impl Sized) {
            let $guard = $setup;
            let log = $open;
            (log, $guard)
        }
        $crate::__update_log_tests! {
            a_page_has_what_is_strictly_after_its_position
            an_append_that_is_repeated_stores_nothing_twice
            an_append_behind_a_gap_is_refused
            an_attempt_begins_once
            a_later_attempt_refuses_the_writes_of_an_earlier_one
            a_later_attempt_adds_to_the_updates_of_an_earlier_one
            the_updates_of_a_run_are_bounded
            the_number_of_runs_is_bounded
            runs_do_not_share_updates
            texts_are_returned_as_they_were
            an_unknown_run_has_no_updates
            a_waiting_reader_sees_an_append
            a_waiting_reader_sees_the_end
            a_wait_for_what_is_there_ends_at_once
            a_closed_run_takes_no_more_updates
            the_last_updates_and_the_end_are_stored_together
            the_first_end_of_an_attempt_stays
            a_lease_expires_unless_it_is_renewed
            only_a_run_without_a_lease_can_be_interrupted
            a_stop_is_seen_by_the_next_renewal
            a_stop_of_an_ended_run_changes_nothing
            a_stop_ends_with_its_attempt
            a_run_expires_after_its_end
            a_run_without_an_end_expires_after_its_lease
            an_expired_run_begins_from_nothing
            a_conversation_is_erased
            updates_are_erased_with_their_conversation
            a_scope_is_erased
            old_runs_are_erased
            an_erased_run_takes_no_more_updates
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __update_log_tests {
    ($($test:ident)*) => { $(
        #[test]
        fn $test() {
            $crate::contract::check(__open, $crate::contract::$test);
        }
    )* };
}
