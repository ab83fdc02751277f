//! How many calls one answer of the model may hold.

use tower_chat_core::{Message, Part};

/// Counts the calls of one answer as its messages arrive.
///
/// The first layer that would store the answer counts, so that nothing of an answer over the limit
/// is stored; the tool loop counts too, before any tool runs, for stacks without such a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallCount {
    limit: Option<usize>,
    calls: usize,
}

/// An answer holds more calls than the tool loop allows.
#[derive(Debug)]
pub(crate) struct TooManyCalls {
    /// How many had arrived.
    pub(crate) calls: usize,
    pub(crate) limit: usize,
}

impl CallCount {
    pub(crate) fn up_to(limit: Option<usize>) -> Self {
        Self { limit, calls: 0 }
    }

    /// Counts the calls of the next message of the answer, those that a provider ran included.
    ///
    /// # Errors
    ///
    /// If there are more than the limit allows.
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
