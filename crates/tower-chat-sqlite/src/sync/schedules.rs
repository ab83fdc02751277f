//! The synchronisation types of the write queue under shuttle.

use std::{cell::Cell, sync::LockResult};

pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicU64};
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
};

/// The number of schedules of each scheduler. The variable `TOWER_CHAT_SCHEDULES` overrides this
/// number.
const SCHEDULES: usize = 500;

thread_local! {
    static LOSES_NOTIFICATIONS: Cell<bool> = const { Cell::new(false) };
}

/// Injects a fault: in tests on the calling thread, `notify_one` no longer wakes any thread.
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

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }
}

/// tokio's oneshot channel. After each message, shuttle may run another thread.
pub(crate) mod oneshot {
    pub(crate) use tokio::sync::oneshot::Receiver;

    #[derive(Debug)]
    pub(crate) struct Sender<T>(tokio::sync::oneshot::Sender<T>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        (Sender(sender), receiver)
    }

    impl<T> Sender<T> {
        pub(crate) fn send(self, message: T) -> Result<(), T> {
            let sent = self.0.send(message);
            shuttle::thread::yield_now();
            sent
        }

        pub(crate) fn is_closed(&self) -> bool {
            self.0.is_closed()
        }
    }
}

/// Runs a test under random schedules, and under schedules with up to three preemptions (PCT).
pub(crate) fn try_schedules(test: impl Fn() + Clone + Send + Sync + 'static) {
    let count = std::env::var("TOWER_CHAT_SCHEDULES").ok();
    let count = count.map_or(SCHEDULES, |count| count.parse().unwrap());
    let mut config = Config::new();
    // The default size of shuttle's stacks is too small for SQLite.
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new_from_seed(1, count), config.clone()).run(test.clone());
    Runner::new(PctScheduler::new_from_seed(2, 3, count), config).run(test);
}
