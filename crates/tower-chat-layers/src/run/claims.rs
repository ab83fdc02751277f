//! The claims of approved calls of earlier runs, and the outcomes of these calls.

use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

use crate::tool::{CallOfRun, ToolOutcome};

/// The state, in this attempt, of the approved calls of earlier runs.
#[derive(Default)]
pub(super) struct ApprovedCalls {
    /// The calls whose tools have not started, with the times at which the run claimed them.
    pub(super) claimed: HashMap<CallOfRun, SystemTime>,
    /// The claimed calls without an outcome, with the times at which the run claimed them. Other
    /// processes must not run these calls.
    pub(super) held: HashMap<CallOfRun, SystemTime>,
    /// Whether a task renews the claims.
    pub(super) is_renewed: bool,
    /// The outcomes of the calls that have run.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// The calls in `outcomes` whose outcome is not stored.
    pub(super) unstored: HashSet<CallOfRun>,
}

impl ApprovedCalls {
    /// Records a claim that is about to be submitted.
    pub(super) fn note_claim(&mut self, call: CallOfRun, now: SystemTime) {
        self.claimed.insert(call, now);
        self.held.insert(call, now);
    }

    /// Records an outcome that is about to be submitted.
    pub(super) fn note_outcome(&mut self, outcome: &ToolOutcome) {
        self.held.remove(&outcome.0);
        self.unstored.insert(outcome.0);
        self.outcomes.push(outcome.clone());
    }

    /// Records that the outcome of a call is stored, or is in the outbox.
    pub(super) fn note_stored(&mut self, call: CallOfRun) {
        self.unstored.remove(&call);
    }

    /// Removes all claims and the list of unstored outcomes. Called when messages with the results
    /// of the calls are submitted, or when another attempt has claimed the calls.
    pub(super) fn forget_claims(&mut self) {
        self.claimed.clear();
        self.held.clear();
        self.unstored.clear();
    }
}

/// The time at which a claim ends. `None` if the claim does not expire, because no other process
/// can access the store. Also `None` if the run withdraws the claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldUntil(pub(super) Option<SystemTime>);
