//! The faults that a test has prepared, and the counts of operations.

use std::collections::{HashMap, VecDeque};

use tower_chat_core::store::{StoreError, author::Write};

use super::{Operation, StoreFault};
use crate::Gate;

/// The prepared faults and gates, and the counts, by operation.
#[derive(Default)]
pub(super) struct Script {
    counts: HashMap<Operation, usize>,
    /// The faults of the next calls of an operation. A call whose entry is `None` succeeds.
    faults: HashMap<Operation, VecDeque<Option<StoreFault>>>,
    gates: HashMap<Operation, Gate>,
    append_error: Option<Box<dyn Fn() -> StoreError + Send>>,
    /// Every write of every call of `append`, oldest first.
    pub(super) writes: Vec<Write>,
}

impl Script {
    /// Prepares a fault, or a success for `None`, for the next unprepared operation of this kind.
    pub(super) fn push(&mut self, operation: Operation, fault: Option<StoreFault>) {
        self.faults.entry(scripted(operation)).or_default().push_back(fault);
    }

    pub(super) fn fail_every_append(&mut self, error: impl Fn() -> StoreError + Send + 'static) {
        self.append_error = Some(Box::new(error));
    }

    pub(super) fn clear_faults(&mut self) {
        self.faults.clear();
        self.append_error = None;
    }

    pub(super) fn hold(&mut self, operation: Operation, gate: &Gate) {
        self.gates.insert(scripted(operation), gate.clone());
    }

    /// Returns whether neither a fault nor a gate is prepared for the next operation of this kind.
    pub(super) fn is_empty(&self, operation: Operation) -> bool {
        let operation = scripted(operation);
        !self.gates.contains_key(&operation)
            && self.faults.get(&operation).is_none_or(VecDeque::is_empty)
    }

    pub(super) fn count(&mut self, operation: Operation) {
        *self.counts.entry(scripted(operation)).or_default() += 1;
    }

    pub(super) fn counted(&self, operation: Operation) -> usize {
        self.counts.get(&scripted(operation)).copied().unwrap_or(0)
    }

    pub(super) fn next_fault(&mut self, operation: Operation) -> Option<StoreFault> {
        let prepared = self.faults.get_mut(&scripted(operation)).and_then(VecDeque::pop_front);
        match (prepared, &self.append_error) {
            (Some(fault), _) => fault,
            (None, Some(error)) if operation == Operation::Append => {
                Some(StoreFault::Before(error()))
            }
            (None, _) => None,
        }
    }

    pub(super) fn next_gate(&mut self, operation: Operation) -> Option<Gate> {
        self.gates.remove(&scripted(operation))
    }
}

/// Returns the operation under which the faults, gates and counts of an operation are stored.
fn scripted(operation: Operation) -> Operation {
    match operation {
        Operation::OpenRun => Operation::Load,
        Operation::ToolTotals => Operation::Invocations,
        other => other,
    }
}
