//! The error of a service that no longer has the history that a request refers to.

use std::error::Error;

/// The service no longer has the response or the conversation whose id the request contains,
/// because it was deleted or has expired.
///
/// Layers receive the errors of a service as [`BoxError`](crate::BoxError)s of unknown types. A
/// model client therefore adds this error to the [`source`](Error::source) chain of its own error.
///
/// ```
/// use tower_chat_core::{HistoryLost, is_history_lost};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the service refused the request: {message}")]
/// struct Refused {
///     message: &'static str,
///     source: HistoryLost,
/// }
///
/// let refused = Refused { message: "previous response not found", source: HistoryLost };
/// assert!(is_history_lost(&refused));
/// assert!(!is_history_lost(&std::fmt::Error));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the service no longer has the history that the request refers to")]
pub struct HistoryLost;

/// Returns whether a request failed because the service no longer has the history that the request
/// refers to.
pub fn is_history_lost(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<HistoryLost>() {
            return true;
        }
        next = error.source();
    }
    false
}
