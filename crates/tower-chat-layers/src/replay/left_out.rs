//! The calls that nothing has answered yet.

use std::sync::Arc;

use imbl::OrdMap;
use tower_chat_core::{ToolResult, pairing::UnansweredCalls};

use super::round::Unanswered;

/// The calls that nothing answered: they are not shown, or with a result that says so. Late results
/// find them by position or id. A clone shares everything with its original.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut {
    /// In the order in which they were left out, which is that of their messages.
    calls: OrdMap<usize, Arc<Unanswered>>,
    next: usize,
    named: UnansweredCalls,
}

impl LeftOut {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Unanswered>> {
        self.calls.values()
    }

    pub(super) fn push(&mut self, call: Unanswered) {
        let number = self.next;
        self.next += 1;
        self.named.insert((call.position, number), &call.candidate());
        self.calls.insert(number, Arc::new(call));
    }

    /// The number of the call that a late result answers: of the last message that it names a call
    /// of, the first.
    pub(super) fn find(&self, result: &ToolResult) -> Option<usize> {
        self.named.find(result).map(|(_, number)| number)
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<Arc<Unanswered>> {
        let call = self.calls.remove(&number)?;
        self.named.remove((call.position, number), &call.candidate());
        Some(call)
    }
}
