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
mod schedules;
