//! The synchronisation types of the cache.
//!
//! By default, the types are those of the standard library. For the tests under many schedules,
//! `.ci/schedules` builds with `--cfg shuttle`. The types are then those of the crate `shuttle`,
//! which chooses the next thread or task to run at each use. `shuttle` does not control the locks
//! inside tokio, moka and shared futures.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(all(test, shuttle))]
pub(crate) use self::schedules::{AtomicU64, Mutex, MutexGuard, try_schedules};

#[cfg(all(test, shuttle))]
mod schedules {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicU64};
    use shuttle::{
        Config, Runner,
        scheduler::{PctScheduler, RandomScheduler},
    };

    /// The number of schedules of each kind, unless `TOWER_CHAT_SCHEDULES` is set.
    const SCHEDULES: usize = 500;

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
