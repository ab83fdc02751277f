//! The synchronisation types of the write queue.
//!
//! By default, the types are those of the standard library and tokio. For the tests under many schedules,
//! `.ci/schedules` builds with `--cfg shuttle`. The types are then those of shuttle, which chooses at
//! each use the thread to run next. shuttle does not control SQLite or the locks inside tokio's channels,
//! but may switch threads after each message of a channel.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(not(all(test, shuttle)))]
pub(crate) use tokio::sync::oneshot;

#[cfg(all(test, shuttle))]
pub(crate) use self::schedules::{
    AtomicU64, Condvar, Mutex, MutexGuard, lose_notifications, oneshot, try_schedules,
};

#[cfg(all(test, shuttle))]
mod schedules;
