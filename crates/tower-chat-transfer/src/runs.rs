//! The directory data of the runs of one conversation, and the part of these data that is missing
//! at the target.
//!
//! The *directory* of a store contains the times, mode and usage of each run, besides the messages.
//! The *activity* of a write is its change of the directory.

use std::{collections::HashMap, time::SystemTime};

use tower_chat_core::{
    RunId, Usage,
    store::{ModelUsage, RunActivity, RunSummary, UsageSum},
};

/// The runs of a conversation in the source and at the target. The target includes the activities
/// that the methods have returned.
#[derive(Default)]
pub(crate) struct Runs {
    source: HashMap<RunId, RunSummary>,
    target: HashMap<RunId, RunSummary>,
}

impl Runs {
    pub(crate) fn add_source(&mut self, run: RunSummary) {
        self.source.insert(run.run, run);
    }

    pub(crate) fn add_target(&mut self, run: RunSummary) {
        self.target.insert(run.run, run);
    }

    pub(crate) fn source(&self, run: RunId) -> Option<&RunSummary> {
        self.source.get(&run)
    }

    /// Returns whether the given runs equal the runs of the source, in any order.
    pub(crate) fn are(&self, runs: &[RunSummary]) -> bool {
        runs.len() == self.source.len()
            && runs.iter().all(|run| self.source.get(&run.run) == Some(run))
    }

    /// Returns the activity for a write of messages: the start and the mode of the run, the time of
    /// its last write in the source, and the usage that is missing at the target. The first write
    /// of a run contains the whole usage, because a store counts all usage of a run on one day.
    ///
    /// The source has no summary of a run whose messages a fork has copied. The activity then has
    /// the time of the fork, which is `created_at`.
    pub(crate) fn next_activity(&mut self, run: RunId, created_at: SystemTime) -> RunActivity {
        let summary = self.source.get(&run).cloned();
        let summary = summary.unwrap_or_else(|| RunSummary::new(run, created_at));
        let known = self.target.get(&run);
        let RunSummary { began_at, last_written_at, .. } = summary;
        let usage = missing_usage(&summary, known);
        let known = self.target.entry(run).or_insert_with(|| RunSummary::new(run, began_at));
        known.last_written_at = known.last_written_at.max(last_written_at);
        known.usage = summary.usage;
        let activity = RunActivity::new(last_written_at).with_start(began_at);
        activity.with_mode(summary.mode).with_usage(usage)
    }

    /// Returns the activity of a write without messages that sets the time of a run's last write.
    /// Returns `None` if the target has this time, or the run is unknown.
    pub(crate) fn last_activity(&mut self, run: RunId) -> Option<RunActivity> {
        let summary = self.source.get(&run)?;
        let known = self.target.get_mut(&run)?;
        let at = summary.last_written_at;
        (known.last_written_at < at).then(|| {
            known.last_written_at = at;
            RunActivity::new(at).with_start(summary.began_at).with_mode(summary.mode)
        })
    }

    /// Returns the runs of which the target lacks data: the whole run, a part of its usage, or the
    /// time of its last write. The runs are in the order of their start, without the open run. After
    /// all messages were appended, most of these runs are pruned or discarded.
    pub(crate) fn missing(&self) -> Vec<RunId> {
        let is_missing = |run: &&RunSummary| {
            let known = self.target.get(&run.run);
            let is_late = known.is_none_or(|known| known.last_written_at < run.last_written_at);
            !run.is_open && (is_late || !missing_usage(run, known).is_empty())
        };
        let mut missing: Vec<_> = self.source.values().filter(is_missing).collect();
        missing.sort_unstable_by_key(|run| (run.began_at, run.run));
        missing.into_iter().map(|run| run.run).collect()
    }

    /// Returns the run that created the conversation. This run began at the time `created_at`.
    /// Returns `None` if it is `first`, the run of the first message.
    pub(crate) fn creator(&self, created_at: SystemTime, first: Option<RunId>) -> Option<RunId> {
        let began_then = |run: &&RunSummary| run.began_at == created_at && !run.is_open;
        if first.and_then(|first| self.source.get(&first)).as_ref().is_some_and(began_then) {
            return None;
        }
        self.source.values().filter(began_then).map(|run| run.run).min()
    }

    /// Returns all runs of the source except the open run, in the order of their start.
    pub(crate) fn in_order(&self) -> Vec<&RunSummary> {
        let mut runs: Vec<_> = self.source.values().filter(|run| !run.is_open).collect();
        runs.sort_unstable_by_key(|run| (run.began_at, run.run));
        runs
    }
}

/// Returns the usage of a run that its summary at the target, `known`, lacks.
fn missing_usage(run: &RunSummary, known: Option<&RunSummary>) -> Vec<ModelUsage> {
    let known = |usage: &ModelUsage| {
        known?.usage.iter().find(|known| known.model == usage.model).map(|known| known.sum)
    };
    let missing = run.usage.iter().map(|usage| {
        let sum = known(usage).map_or(usage.sum, |known| difference(&usage.sum, &known));
        ModelUsage::new(usage.model.clone(), sum)
    });
    missing.filter(|usage| !usage.sum.is_zero()).collect()
}

fn difference(sum: &UsageSum, known: &UsageSum) -> UsageSum {
    let (tokens, had) = (sum.tokens, known.tokens);
    let mut missing = Usage::new(
        tokens.input_tokens.saturating_sub(had.input_tokens),
        tokens.output_tokens.saturating_sub(had.output_tokens),
    );
    missing.cached_input_tokens =
        tokens.cached_input_tokens.saturating_sub(had.cached_input_tokens);
    missing.reasoning_tokens = tokens.reasoning_tokens.saturating_sub(had.reasoning_tokens);
    let cost = sum.cost_nanos.map(|cost| cost.saturating_sub(known.cost_nanos.unwrap_or_default()));
    UsageSum::of_calls(
        sum.service_calls.saturating_sub(known.service_calls),
        sum.tool_calls.saturating_sub(known.tool_calls),
    )
    .with_tokens(missing)
    .with_cost_nanos(cost.filter(|cost| *cost > 0 || known.cost_nanos.is_none()))
}
