//! Whether an error ends a run for good.

use std::error::Error;

use crate::{
    PersistenceError, ToolLoopError, pipeline::DeadlineExceeded, recovery::JournalPolicy,
    validate::InvalidRequest,
};

impl JournalPolicy {
    /// Whether a run that failed with this error, at this attempt, would fail again with the same
    /// request.
    pub(crate) fn is_refusal(&self, error: &(dyn Error + 'static), attempt: u32) -> bool {
        is_refusal(error).unwrap_or(attempt >= self.max_unclear_attempts)
    }
}

/// Whether a request failed before a service was asked: the stack, the store or a check has refused it.
pub(crate) fn is_before_service(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref::<PersistenceError>() {
        Some(
            PersistenceError::ContentRefused { .. } | PersistenceError::ServiceHistoryLost { .. },
        ) => false,
        Some(_) => true,
        None => error.is::<ToolLoopError>() || error.is::<InvalidRequest>(),
    }
}

/// The same of the error alone; `None` if nothing in its chain of sources says so.
fn is_refusal(error: &(dyn Error + 'static)) -> Option<bool> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<ToolLoopError>() {
            // A run whose calls are unknown waits for somebody who knows of them.
            let is_undecided = matches!(error, ToolLoopError::UnknownCalls { .. });
            return Some(!is_undecided && !error.is_retryable());
        }
        if let Some(error) = error.downcast_ref::<PersistenceError>() {
            // What the store or the stack cannot do says nothing of the request.
            return Some(matches!(
                error,
                PersistenceError::Dangling { .. }
                    | PersistenceError::EmptyRequest { .. }
                    | PersistenceError::ContentRefused { .. }
                    | PersistenceError::ServiceHistoryLost { .. }
            ));
        }
        if error.is::<DeadlineExceeded>() {
            return Some(false);
        }
        if let Some(error) = error.downcast_ref::<InvalidRequest>() {
            return Some(!error.is_retryable());
        }
        next = error.source();
    }
    tower_chat_core::is_retryable(error).map(|is_retryable| !is_retryable)
}
