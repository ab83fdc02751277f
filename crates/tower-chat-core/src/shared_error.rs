//! An error that can be cloned.

use std::{error::Error, fmt, ops::Deref, sync::Arc};

use crate::BoxError;

/// An error of any type that can be cloned, for use as the source of other errors.
///
/// A shared error does not implement [`Error`], but dereferences to the inner error. If a shared
/// error is the source of an outer error, [`source`](Error::source) of the outer error returns the
/// inner error, which can be downcast to its own type.
///
/// ```
/// use std::error::Error;
/// use tower_chat_core::{SharedError, store::StoreError};
/// let error = StoreError::backend("load", false, std::fmt::Error).clone();
/// assert!(error.source().is_some_and(|source| source.is::<std::fmt::Error>()));
/// let StoreError::Backend { source, .. } = error else { unreachable!() };
/// assert_eq!(source.to_string(), std::fmt::Error.to_string());
/// # let _: SharedError = source;
/// ```
#[derive(Clone)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

impl SharedError {
    /// Wraps an error. A text is converted into an error.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into().into())
    }
}

impl Deref for SharedError {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
