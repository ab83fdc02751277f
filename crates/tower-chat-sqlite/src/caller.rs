//! Execution of short work on the calling thread, so that no other thread has to be woken.
//!
//! This module makes writes faster: storing a service call with `Durability::Normal` takes 28 us,
//! and 40 to 47 us if the writer thread executes every write (case `sqlite` of the benches, no
//! stored messages).

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task,
};

thread_local! {
    /// Whether `block_in_place` has panicked on this thread.
    static BLOCKING_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread may try to block. The thread must belong to a multi-thread
/// runtime, whose other threads then continue to execute tasks, and tokio must not have refused an
/// earlier attempt.
pub(crate) fn may_block() -> bool {
    // The threads of shuttle may block, because they belong to no runtime.
    if cfg!(all(test, shuttle)) {
        return true;
    }
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    matches!(flavor, Ok(RuntimeFlavor::MultiThread)) && !BLOCKING_PANICKED.get()
}

/// Runs a blocking function on the calling thread. Returns `None` without running the function if
/// tokio does not allow blocking, for example inside a `LocalSet`. Only an attempt to block detects
/// a `LocalSet`.
pub(crate) fn block<T>(body: impl FnOnce() -> T) -> Option<T> {
    // Outside of a task (in `Runtime::block_on`), the thread executes no other tasks.
    if task::try_id().is_none() {
        return Some(body());
    }
    let mut body = Some(body);
    let outcome =
        catch_unwind(AssertUnwindSafe(|| task::block_in_place(|| body.take().map(|body| body()))));
    match outcome {
        Ok(outcome) => outcome,
        Err(_) if body.is_some() => {
            BLOCKING_PANICKED.set(true);
            None
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
