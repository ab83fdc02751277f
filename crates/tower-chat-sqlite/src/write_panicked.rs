//! A panic that stopped a write.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A panic stopped a write. If the panic occurred in a statement of the write, the write is not
/// stored, and no other write is affected. If the panic occurred in the commit or in a checkpoint,
/// every write of the transaction fails with this error, and may or may not be stored.
///
/// This error is the source of a
/// [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend) that is not retryable.
/// Under `panic = "abort"` a panic ends the process instead of causing this error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a panic stopped the write: {message}: report it as a bug")]
#[non_exhaustive]
pub struct WritePanicked {
    /// The message of the panic.
    pub message: String,
}

/// Calls a function, and returns an error if the function panics.
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
