//! Whether a request that failed may succeed if it is sent again.

use std::{
    any::TypeId,
    error::Error,
    sync::{PoisonError, RwLock},
};

use crate::{ContentRefused, SentinelAtClient, TruncatedStream, store::StoreError};

/// What an error says of the request that it failed: an error that stands somewhere in the
/// [`source`](Error::source) chain of another one.
///
/// The layers get the errors of a service as [`BoxError`](crate::BoxError)s of types they do not
/// know. A model client puts this at the end of the chain of its own error, so that every layer can
/// ask [`is_retryable`], also where a layer between them has wrapped the error.
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
    /// What an HTTP status says: 408, 409, 429 and 5xx may pass.
    pub fn of_status(status: u16) -> Self {
        Self::from_retryable(matches!(status, 408 | 409 | 429 | 500..=599))
    }

    /// `Retryable` if it is.
    pub fn from_retryable(is_retryable: bool) -> Self {
        if is_retryable { Self::Retryable } else { Self::Permanent }
    }
}

/// What is asked of one registered type of errors.
struct Known {
    error: TypeId,
    is_retryable: Box<Ask>,
}

/// Says whether an error is retryable; `None` if it is of another type.
type Ask = dyn Fn(&(dyn Error + 'static)) -> Option<bool> + Send + Sync;

/// The types of errors that model clients have registered in this process.
static KNOWN: RwLock<Vec<Known>> = RwLock::new(Vec::new());

/// Makes a type of errors known to [`is_retryable`], for the whole process. The constructors of the
/// model clients of this workspace do it for their errors; an error whose chain ends with a
/// [`Retryability`] needs no registration. Registering a type again changes nothing.
///
/// ```
/// use tower_chat_core::{is_retryable, register_error};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the model has no room left")]
/// struct TooLong;
///
/// assert_eq!(is_retryable(&TooLong), None);
/// register_error::<TooLong>(|_| false);
/// assert_eq!(is_retryable(&TooLong), Some(false));
/// ```
pub fn register_error<E: Error + 'static>(is_retryable: fn(&E) -> bool) {
    let error = TypeId::of::<E>();
    let is_known = |known: &[Known]| known.iter().any(|known| known.error == error);
    if is_known(&KNOWN.read().unwrap_or_else(PoisonError::into_inner)) {
        return;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if !is_known(&known) {
        let is_retryable =
            Box::new(move |error: &(dyn Error + 'static)| error.downcast_ref().map(is_retryable));
        known.push(Known { error, is_retryable });
    }
}

fn registered(error: &(dyn Error + 'static)) -> Option<bool> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.iter().find_map(|known| (known.is_retryable)(error))
}

/// Whether the request that failed with this error may succeed if it is sent again; `None` if
/// nothing in the error's chain of sources says so.
///
/// It knows [`Retryability`], the errors of this crate, and what was
/// [registered](register_error).
///
/// ```
/// use tower_chat_core::{Retryability, is_retryable, store::StoreError};
///
/// assert_eq!(is_retryable(&Retryability::of_status(503)), Some(true));
/// assert_eq!(is_retryable(&StoreError::ReadOnly), Some(false));
/// assert_eq!(is_retryable(&std::fmt::Error), None); // it says nothing of retries
/// ```
pub fn is_retryable(error: &(dyn Error + 'static)) -> Option<bool> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(verdict) = error.downcast_ref::<Retryability>() {
            return Some(*verdict == Retryability::Retryable);
        }
        if let Some(store) = error.downcast_ref::<StoreError>() {
            return Some(store.is_retryable());
        }
        if error.is::<TruncatedStream>() {
            return Some(true);
        }
        if error.is::<SentinelAtClient>() || error.is::<ContentRefused>() {
            return Some(false);
        }
        if let Some(verdict) = registered(error) {
            return Some(verdict);
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
    fn an_error_is_known_by_what_stands_in_its_chain() {
        assert_eq!(is_retryable(&Outer(Retryability::of_status(400))), Some(false));
        assert_eq!(is_retryable(&Outer(Retryability::of_status(503))), Some(true));
        assert_eq!(is_retryable(&TruncatedStream::default()), Some(true));
        assert_eq!(is_retryable(&std::fmt::Error), None);
    }
}
