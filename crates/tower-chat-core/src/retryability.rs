//! Types and functions that state whether a request that failed may succeed if it is sent again.

use std::{error::Error, fmt};

use crate::{
    BoxError, BranchError, ContentRefused, HistoryLost, SentinelAtClient, TruncatedStream,
    store::StoreError,
};

/// Whether a failed request may succeed if it is sent again. A `Retryability` is an error, which is
/// added to the [`source`](Error::source) chain of another error.
///
/// Layers receive the errors of a service as [`BoxError`](crate::BoxError)s of unknown types. A
/// model client therefore puts this error at the end of the chain of its own error. Every layer can
/// then call [`is_retryable`], even if a layer in between has wrapped the error.
///
/// ```
/// use tower_chat_core::{Retryability, is_retryable};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the service refused the request with status {status}")]
/// struct Refused {
///     status: u16,
///     source: Retryability,
/// }
///
/// let refused = Refused { status: 400, source: Retryability::of_status(400) };
/// assert_eq!(is_retryable(&refused), Some(false));
/// ```
///
/// For an error that also has a cause, use [`Classified`], which contains both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Retryability {
    /// The same request may succeed later.
    #[error("the same request may succeed later")]
    Retryable,
    /// The same request fails again.
    #[error("the same request would fail again")]
    Permanent,
}

impl Retryability {
    /// Classifies an HTTP status: 408, 409, 429 and all 5xx are retryable, all others are not.
    pub fn of_status(status: u16) -> Self {
        Self::from_retryable(matches!(status, 408 | 409 | 429 | 500..=599))
    }

    /// Returns `Retryable` for true and `Permanent` for false.
    pub fn from_retryable(is_retryable: bool) -> Self {
        if is_retryable { Self::Retryable } else { Self::Permanent }
    }

    /// Returns this value as the [`source`](Error::source) of an error that has no other cause.
    ///
    /// ```
    /// use std::{error::Error, fmt};
    /// use tower_chat_core::{Retryability, is_retryable};
    ///
    /// #[derive(Debug)]
    /// enum Failure {
    ///     TooLong,
    ///     Overloaded,
    /// }
    ///
    /// impl fmt::Display for Failure {
    ///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    ///         write!(f, "the model has no room left")
    ///     }
    /// }
    ///
    /// impl Error for Failure {
    ///     fn source(&self) -> Option<&(dyn Error + 'static)> {
    ///         let is_retryable = matches!(self, Self::Overloaded);
    ///         Some(Retryability::from_retryable(is_retryable).as_source())
    ///     }
    /// }
    /// assert_eq!(is_retryable(&Failure::TooLong), Some(false));
    /// assert_eq!(is_retryable(&Failure::Overloaded), Some(true));
    /// ```
    pub fn as_source(self) -> &'static (dyn Error + 'static) {
        match self {
            Self::Retryable => &Self::Retryable,
            Self::Permanent => &Self::Permanent,
        }
    }
}

/// The cause of an error together with a [`Retryability`]. Use this type for a cause that has no
/// `Retryability` in its source chain. Also use this type if the `Retryability` of the cause does
/// not apply to the new error.
///
/// The text of this error is the text of the cause, and the source of this error is the cause.
///
/// ```
/// use tower_chat_core::{Classified, is_retryable};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the service could not be reached")]
/// struct Unreachable(#[source] Classified);
///
/// let cause = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// let error = Unreachable(Classified::retryable(cause));
/// assert_eq!(is_retryable(&error), Some(true));
/// ```
#[derive(Debug)]
pub struct Classified {
    retryability: Retryability,
    cause: BoxError,
}

impl Classified {
    /// Adds a `Retryability` to a cause.
    pub fn new(retryability: Retryability, cause: impl Into<BoxError>) -> Self {
        Self { retryability, cause: cause.into() }
    }

    /// Adds [`Retryability::Retryable`] to a cause.
    pub fn retryable(cause: impl Into<BoxError>) -> Self {
        Self::new(Retryability::Retryable, cause)
    }

    /// Adds [`Retryability::Permanent`] to a cause.
    pub fn permanent(cause: impl Into<BoxError>) -> Self {
        Self::new(Retryability::Permanent, cause)
    }
}

impl fmt::Display for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for Classified {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// Returns whether an error is a [`Retryability`] or a [`Classified`]. Code that prints a chain of
/// sources for a person skips such an error.
pub fn is_verdict(error: &(dyn Error + 'static)) -> bool {
    error.is::<Retryability>() || error.is::<Classified>()
}

/// Returns whether the request that failed with this error may succeed if it is sent again; `None`
/// if no error in the source chain decides this.
///
/// The function recognises [`Retryability`], [`Classified`] and the errors of this crate. The other
/// crates of this workspace add a `Retryability` or a `Classified` to their errors. If several
/// errors in the chain decide this, the first one of them applies.
///
/// ```
/// use tower_chat_core::{Retryability, is_retryable, store::StoreError};
///
/// assert_eq!(is_retryable(&Retryability::of_status(503)), Some(true));
/// assert_eq!(is_retryable(&StoreError::ReadOnly), Some(false));
/// assert_eq!(is_retryable(&std::fmt::Error), None); // no verdict in the chain
/// ```
pub fn is_retryable(error: &(dyn Error + 'static)) -> Option<bool> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(verdict) = error.downcast_ref::<Retryability>() {
            return Some(*verdict == Retryability::Retryable);
        }
        if let Some(classified) = error.downcast_ref::<Classified>() {
            return Some(classified.retryability == Retryability::Retryable);
        }
        if let Some(store) = error.downcast_ref::<StoreError>() {
            return Some(store.is_retryable());
        }
        if let Some(BranchError::Changed { .. }) = error.downcast_ref::<BranchError>() {
            return Some(true);
        }
        if error.is::<TruncatedStream>() {
            return Some(true);
        }
        if error.is::<SentinelAtClient>()
            || error.is::<ContentRefused>()
            || error.is::<HistoryLost>()
        {
            return Some(false);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Retryability);

    #[test]
    fn is_retryable_searches_the_error_and_its_sources() {
        assert_eq!(is_retryable(&Outer(Retryability::of_status(400))), Some(false));
        assert_eq!(is_retryable(&Outer(Retryability::of_status(503))), Some(true));
        assert_eq!(is_retryable(&TruncatedStream::default()), Some(true));
        assert_eq!(is_retryable(&SentinelAtClient), Some(false));
        assert_eq!(is_retryable(&HistoryLost), Some(false));
        assert_eq!(is_retryable(&std::fmt::Error), None);
    }

    #[test]
    fn the_outermost_retryability_in_an_error_chain_wins() {
        let cause = Outer(Retryability::Retryable);
        let error = Classified::permanent(cause);
        assert_eq!(is_retryable(&error), Some(false));
        assert!(error.source().is_some_and(|cause| cause.is::<Outer>()));
        assert_eq!(error.to_string(), "outer");
    }
}
