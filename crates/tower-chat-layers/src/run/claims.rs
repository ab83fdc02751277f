//! The claims of approved calls of earlier runs, and the outcomes of these calls.

use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

use crate::tool::{CallOfRun, ToolOutcome};

/// The state, in this attempt, of the approved calls of earlier runs.
#[derive(Default)]
pub(crate) struct ApprovedCalls {
    /// The calls whose tools have not started, with the times at which the run claimed them.
    pub(super) claimed: HashMap<CallOfRun, SystemTime>,
    /// The claimed calls without an outcome, which other processes must not run, with the times of
    /// the claims.
    pub(super) held: HashMap<CallOfRun, SystemTime>,
    pub(super) is_renewed: bool,
    /// The outcomes of the calls that have run.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// The calls in `outcomes` whose outcome is not stored.
    pub(super) unstored: HashSet<CallOfRun>,
}

impl ApprovedCalls {
    pub(super) fn note_claim(&mut self, call: CallOfRun, now: SystemTime) {
        self.claimed.insert(call, now);
        self.held.insert(call, now);
    }

    pub(super) fn note_outcome(&mut self, outcome: &ToolOutcome) {
        self.held.remove(&outcome.0);
        self.unstored.insert(outcome.0);
        self.outcomes.push(outcome.clone());
    }

    /// Records that the outcome of a call is stored, or is in the outbox.
    pub(super) fn note_stored(&mut self, call: CallOfRun) {
        self.unstored.remove(&call);
    }

    /// Records that the tool of a call has started. Its claim is no longer withdrawn, because the
    /// tool may have had an effect.
    pub(crate) fn note_begun(&mut self, call: CallOfRun) {
        self.claimed.remove(&call);
    }

    /// Removes all claims and the list of unstored outcomes, so that no claim is withdrawn later:
    /// the results of the calls are submitted, or another attempt has claimed the calls.
    pub(crate) fn forget_claims(&mut self) {
        self.claimed.clear();
        self.held.clear();
        self.unstored.clear();
    }
}
