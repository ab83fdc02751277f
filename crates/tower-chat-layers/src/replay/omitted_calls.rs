//! Stores the calls without a result in closed rounds. A round consists of the calls of one answer
//! of the model and their results. A round is closed when later messages show that it is over.

use std::sync::Arc;

use imbl::OrdMap;
use tower_chat_core::{ToolResult, pairing::UnansweredCalls};

use super::round::RoundCall;

/// The calls without a result in closed rounds. The replay omits such a call, or contains it with a
/// result that reports the interruption. A late result identifies its call by position or id.
#[derive(Debug, Clone, Default)]
pub(super) struct OmittedCalls {
    /// The calls by number, in the order of their messages.
    calls: OrdMap<usize, Arc<RoundCall>>,
    next: usize,
    named: UnansweredCalls,
}

impl OmittedCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<RoundCall>> {
        self.calls.values()
    }

    pub(super) fn push(&mut self, call: RoundCall) {
        let number = self.next;
        self.next += 1;
        self.named.insert((call.position, number), &call.candidate());
        self.calls.insert(number, Arc::new(call));
    }

    /// Returns the number of the call that a late result answers. If several calls match, returns
    /// the first one in the latest of their rounds.
    pub(super) fn find(&self, result: &ToolResult) -> Option<usize> {
        self.named.find(result).map(|(_, number)| number)
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<Arc<RoundCall>> {
        let call = self.calls.remove(&number)?;
        self.named.remove((call.position, number), &call.candidate());
        Some(call)
    }
}
