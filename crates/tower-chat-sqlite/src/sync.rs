//! What the threads of the queue share.
//!
//! It is the standard library's. In the tests of the queue under many schedules, which `.ci/schedules`
//! builds with `--cfg shuttle`, it is shuttle's, which chooses at each use which thread goes on. What
//! tokio has inside its channels is no such point, and neither is what SQLite does; that a message was
//! sent is one.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(not(all(test, shuttle)))]
pub(crate) use tokio::sync::oneshot;

#[cfg(all(test, shuttle))]
pub(crate) use self::schedules::{
    AtomicU64, Condvar, Mutex, MutexGuard, lose_notifications, oneshot, try_schedules,
};

#[cfg(all(test, shuttle))]
mod schedules {
    use std::{cell::Cell, sync::LockResult};

    pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicU64};
    use shuttle::{
        Config, Runner,
        scheduler::{PctScheduler, RandomScheduler},
    };

    /// How many schedules of each kind are tried, unless `TOWER_CHAT_SCHEDULES` says so.
    const SCHEDULES: usize = 500;

    thread_local! {
        static LOSES_NOTIFICATIONS: Cell<bool> = const { Cell::new(false) };
    }

    /// A fault that is planted: from now on no thread is woken in the tests of this thread.
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
    }

    /// tokio's channel, after each message of which another thread may go on.
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

    /// Tries a test under schedules that are random at every point, and under some that take turns
    /// at three points alone.
    pub(crate) fn try_schedules(test: impl Fn() + Clone + Send + Sync + 'static) {
        let count = std::env::var("TOWER_CHAT_SCHEDULES").ok();
        let count = count.map_or(SCHEDULES, |count| count.parse().unwrap());
        let mut config = Config::new();
        // SQLite runs on the stacks of shuttle's threads.
        config.stack_size = 1 << 20;
        Runner::new(RandomScheduler::new_from_seed(1, count), config.clone()).run(test.clone());
        Runner::new(PctScheduler::new_from_seed(2, 3, count), config).run(test);
    }
}
