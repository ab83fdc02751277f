//! Limits the number of calls in one answer of the model.

use tower_chat_core::{Message, Part};

/// Counts the calls of one answer as its messages arrive.
///
/// The first layer that would store the answer counts, so that nothing of an answer over the limit is
/// stored. The tool loop also counts before any tool runs, for stacks without such a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallCount {
    limit: Option<usize>,
    calls: usize,
}

/// The error for an answer with more calls than the tool loop allows.
#[derive(Debug)]
pub(crate) struct TooManyCalls {
    /// The number of calls that had arrived.
    pub(crate) calls: usize,
    pub(crate) limit: usize,
}

impl CallCount {
    pub(crate) fn up_to(limit: Option<usize>) -> Self {
        Self { limit, calls: 0 }
    }

    /// Counts the calls of the next message of the answer, including those that a provider ran.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more calls than the limit allows.
    pub(crate) fn take(&mut self, message: &Message) -> Result<(), TooManyCalls> {
        let Some(limit) = self.limit else { return Ok(()) };
        let is_call = |part: &&Part| matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_));
        self.calls = self.calls.saturating_add(message.parts.iter().filter(is_call).count());
        if self.calls <= limit {
            return Ok(());
        }
        Err(TooManyCalls { calls: self.calls, limit })
    }
}
