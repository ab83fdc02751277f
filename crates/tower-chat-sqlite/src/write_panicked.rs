//! A panic that stopped a write.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A panic stopped a write. If one of its statements panicked, nothing of the write is stored, and
/// other writes of the store are not affected. If the commit or a checkpoint panicked, every write
/// of the transaction has this error and may be stored or not.
///
/// This error is the source of a [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend)
/// that is not retryable. Under `panic = "abort"` there is no such error: the process ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the write panicked and was rolled back: {message}: report it as a bug")]
#[non_exhaustive]
pub struct WritePanicked {
    /// The message of the panic.
    pub message: String,
}

/// Runs a function and returns a panic as an error.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, WritePanicked> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| WritePanicked::new(&*panic))
}

impl WritePanicked {
    fn new(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self { message: text.unwrap_or("the panic has no message").to_owned() }
    }
}
