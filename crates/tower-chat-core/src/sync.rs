//! The locks of what is tested under many schedules.
//!
//! They are the standard library's. In those tests, which `.ci/schedules` builds with `--cfg shuttle`,
//! they are shuttle's, which chooses at each use which thread or task goes on. What tokio has inside its
//! channels is no such point.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(all(test, shuttle))]
pub(crate) use self::schedules::{Mutex, MutexGuard, try_schedules};

#[cfg(all(test, shuttle))]
mod schedules {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    use shuttle::{
        Config, Runner,
        scheduler::{PctScheduler, RandomScheduler},
    };

    /// How many schedules of each kind are tried, unless `TOWER_CHAT_SCHEDULES` says so.
    const SCHEDULES: usize = 500;

    /// Tries a test under schedules that are random at every point, and under some that take turns
    /// at three points alone.
    pub(crate) fn try_schedules(test: impl Fn() + Clone + Send + Sync + 'static) {
        let count = std::env::var("TOWER_CHAT_SCHEDULES").ok();
        let count = count.map_or(SCHEDULES, |count| count.parse().unwrap());
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        Runner::new(RandomScheduler::new_from_seed(1, count), config.clone()).run(test.clone());
        Runner::new(PctScheduler::new_from_seed(2, 3, count), config).run(test);
    }
}
