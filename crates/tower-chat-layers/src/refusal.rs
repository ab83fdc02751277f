//! Decides whether an error is a permanent failure of a run.

use std::error::Error;

use crate::{
    PersistenceError, ToolLoopError, pipeline::DeadlineExceeded, recovery::JournalPolicy,
    validate::InvalidRequest,
};

impl JournalPolicy {
    /// Returns whether the policy treats this error of this attempt as a permanent failure of the
    /// run.
    pub(crate) fn is_refusal(&self, error: &(dyn Error + 'static), attempt: u32) -> bool {
        is_refusal(error).unwrap_or(attempt >= self.max_unclear_attempts)
    }
}

/// Returns whether the error is from the stack, the store or a check of the request, and not from a
/// service.
pub(crate) fn is_before_service(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref::<PersistenceError>() {
        Some(
            PersistenceError::ContentRefused { .. } | PersistenceError::ServiceHistoryLost { .. },
        ) => false,
        Some(_) => true,
        None => error.is::<ToolLoopError>() || error.is::<InvalidRequest>(),
    }
}

/// Returns `None` if no error in the source chain decides whether the failure is permanent.
fn is_refusal(error: &(dyn Error + 'static)) -> Option<bool> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<ToolLoopError>() {
            // A run with unknown calls waits for a decision of the application.
            let is_undecided = matches!(error, ToolLoopError::UnknownCalls { .. });
            return Some(!is_undecided && !error.is_retryable());
        }
        if let Some(error) = error.downcast_ref::<PersistenceError>() {
            // All other errors are failures of the store or the stack, and do not depend on the
            // request.
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
