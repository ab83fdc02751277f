//! The calls that nothing has answered yet.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use tower_chat_core::{CallPosition, ToolResult};

use super::round::Unanswered;

/// The calls that nothing answered: they are not shown, or with a result that says so. Late results
/// find them by position or id. A clone shares everything with its original.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut {
    /// In the order in which they were left out, which is that of their messages.
    calls: OrdMap<usize, Arc<Unanswered>>,
    next: usize,
    named: NamedCalls,
}

/// Calls by what late results may say of them.
#[derive(Debug, Clone, Default)]
pub(super) struct NamedCalls {
    by_id: OrdSet<(Arc<str>, CallNumber)>,
    by_position: OrdSet<(CallPosition, CallNumber)>,
}

/// The answer that a call is part of, and the number of the call; later calls have higher numbers,
/// and are of the same answer or of a later one.
pub(super) type CallNumber = (usize, usize);

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
        self.named.insert((call.position, number), call.named_by, call.ids());
        self.calls.insert(number, Arc::new(call));
    }

    /// The number of the call that a late result answers: of the last message that it names a call
    /// of, the first.
    pub(super) fn find(&self, result: &ToolResult) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.named.find(result).map(|(_, number)| number)
    }

    pub(super) fn get(&self, number: usize) -> Option<&Arc<Unanswered>> {
        self.calls.get(&number)
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<Arc<Unanswered>> {
        let call = self.calls.remove(&number)?;
        self.named.remove((call.position, number), call.named_by, call.ids());
        Some(call)
    }

    /// Replaces a call by the same call in another state.
    pub(super) fn set(&mut self, number: usize, call: Arc<Unanswered>) {
        self.calls.insert(number, call);
    }
}

impl NamedCalls {
    pub(super) fn insert<'a>(
        &mut self,
        number: CallNumber,
        position: CallPosition,
        ids: impl Iterator<Item = &'a str>,
    ) {
        self.by_position.insert((position, number));
        for id in ids {
            self.by_id.insert((id.into(), number));
        }
    }

    pub(super) fn remove<'a>(
        &mut self,
        number: CallNumber,
        position: CallPosition,
        ids: impl Iterator<Item = &'a str>,
    ) {
        self.by_position.remove(&(position, number));
        for id in ids {
            self.by_id.remove(&(id.into(), number));
        }
    }

    /// Of the last answer with calls that a result names, the first of them.
    pub(super) fn find(&self, result: &ToolResult) -> Option<CallNumber> {
        if let Some(named) = result.call {
            return first_of_last(&self.by_position, &named);
        }
        let id = result.call_id.as_deref().filter(|id| !id.is_empty())?;
        first_of_last(&self.by_id, &id.into())
    }
}

fn first_of_last<N: Ord + Clone>(calls: &OrdSet<(N, CallNumber)>, name: &N) -> Option<CallNumber> {
    const LAST: usize = usize::MAX;
    let within = |from: CallNumber, to: CallNumber| (name.clone(), from)..=(name.clone(), to);
    let &(_, (answer, _)) = calls.range(within((0, 0), (LAST, LAST))).next_back()?;
    let &(_, number) = calls.range(within((answer, 0), (answer, LAST))).next()?;
    Some(number)
}
