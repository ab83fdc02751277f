//! The synchronisation types of the cache and of write-behind.
//!
//! They are the types of the standard library. For the tests under many schedules, `.ci/schedules`
//! builds with `--cfg shuttle`. The types are then those of shuttle, which chooses at each use the
//! thread or task to run next. shuttle does not control the locks inside tokio, moka and shared
//! futures.

#[cfg(not(all(test, shuttle)))]
pub(crate) use self::standard::{
    AtomicU64, Condvar, Mutex, MutexGuard, OnceLock, block_on, thread,
};

#[cfg(all(test, shuttle))]
pub(crate) use self::schedules::{
    AtomicU64, Condvar, Mutex, MutexGuard, OnceLock, block_on, lose_notifications, thread,
    try_schedules,
};

#[cfg(not(all(test, shuttle)))]
mod standard {
    pub(crate) use std::{
        sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic::AtomicU64},
        thread,
    };

    pub(crate) use futures_executor::block_on;
}

#[cfg(all(test, shuttle))]
mod schedules {
    use std::{cell::Cell, sync::LockResult, time::Duration};

    use shuttle::{
        Config, Runner,
        scheduler::{PctScheduler, RandomScheduler},
        sync::{Once, WaitTimeoutResult},
    };
    pub(crate) use shuttle::{
        future::block_on,
        sync::{Mutex, MutexGuard, atomic::AtomicU64},
        thread,
    };

    /// The number of schedules of each kind, unless `TOWER_CHAT_SCHEDULES` is set.
    const SCHEDULES: usize = 500;

    thread_local! {
        static LOSES_NOTIFICATIONS: Cell<bool> = const { Cell::new(false) };
    }

    /// Injects a fault: from now on `notify_one` wakes no thread in the tests of this thread.
    pub(crate) fn lose_notifications() {
        LOSES_NOTIFICATIONS.set(true);
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(shuttle::sync::Condvar::new())
        }

        pub(crate) fn notify_one(&self) {
            if !LOSES_NOTIFICATIONS.get() {
                self.0.notify_one();
            }
        }

        pub(crate) fn wait<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
        ) -> LockResult<MutexGuard<'a, T>> {
            self.0.wait(guard)
        }

        /// Never times out.
        pub(crate) fn wait_timeout<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            time: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
            self.0.wait_timeout(guard, time)
        }
    }

    #[derive(Debug)]
    pub(crate) struct OnceLock<T> {
        once: Once,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self { once: Once::new(), value: std::sync::OnceLock::new() }
        }

        pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            self.once.call_once(|| drop(self.value.set(init())));
            self.value.get().expect("the value was set by `call_once`")
        }
    }

    /// Runs a test under random schedules, and under schedules with preemptions at up to three
    /// points (PCT).
    pub(crate) fn try_schedules(test: impl Fn() + Clone + Send + Sync + 'static) {
        let count = std::env::var("TOWER_CHAT_SCHEDULES").ok();
        let count = count.map_or(SCHEDULES, |count| count.parse().unwrap());
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        Runner::new(RandomScheduler::new_from_seed(1, count), config.clone()).run(test.clone());
        Runner::new(PctScheduler::new_from_seed(2, 3, count), config).run(test);
    }
}
