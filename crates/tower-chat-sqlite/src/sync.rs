//! The synchronisation types of the write queue.
//!
//! By default, this module exports types of the standard library and of tokio. For tests under many
//! schedules, `.ci/schedules` builds the crate with `--cfg shuttle`, and the module exports types
//! of the crate `shuttle` instead. At each operation on such a type, shuttle chooses the thread
//! that runs next. shuttle does not control the locks of SQLite.

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
