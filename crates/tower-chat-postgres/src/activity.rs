//! What a write tells of its run, as the tables of the directory take it.

use std::time::SystemTime;

use tower_chat_core::{
    PersistenceMode,
    store::{
        ModelUsage, RunActivity, UsageSum,
        author::{Write, milliseconds},
    },
};

use crate::{stored_key, tool_row::number};

/// What a write tells of its run.
#[derive(Debug)]
pub(crate) struct Activity {
    /// When, in milliseconds since 1970, as all times here; `None` of a write that is of no run.
    pub(crate) at: Option<i64>,
    /// When the run began, and the conversation was made, if this is the first write of either.
    pub(crate) made: i64,
    pub(crate) mode: Option<&'static str>,
    /// A row of each model; one of none where nothing was used.
    pub(crate) usage: Vec<UsageRow>,
}

/// What a write adds to the usage of a model.
#[derive(Debug)]
pub(crate) struct UsageRow {
    /// As it stands in the primary key: empty if it is not known.
    pub(crate) model: Vec<u8>,
    pub(crate) long_model: Option<Vec<u8>>,
    /// Calls of models and of tools, tokens of input, of it cached, of output, of it reasoning.
    pub(crate) counts: [i64; 6],
    pub(crate) cost_nanos: Option<i64>,
}

/// The rows of a write, column by column.
#[derive(Debug, Default)]
pub(crate) struct UsageColumns<'a> {
    pub(crate) models: Vec<&'a [u8]>,
    pub(crate) long_models: Vec<Option<&'a [u8]>>,
    pub(crate) counts: [Vec<i64>; 6],
    pub(crate) cost_nanos: Vec<Option<i64>>,
}

impl Activity {
    pub(crate) fn of(write: &Write) -> Self {
        let activity = write.activity();
        let at = activity.map(|activity| milliseconds::of(activity.at()));
        let nothing = [ModelUsage::new(None, UsageSum::default())];
        let usage = if write.usage().is_empty() { &nothing } else { write.usage() };
        Self {
            at,
            made: milliseconds::of(activity.map_or_else(SystemTime::now, RunActivity::began_at)),
            mode: activity.and_then(RunActivity::mode).map(PersistenceMode::as_str),
            usage: usage.iter().map(UsageRow::new).collect(),
        }
    }

    pub(crate) fn columns(&self) -> UsageColumns<'_> {
        let mut columns = UsageColumns::default();
        for row in &self.usage {
            columns.models.push(&row.model);
            columns.long_models.push(row.long_model.as_deref());
            for (column, count) in columns.counts.iter_mut().zip(row.counts) {
                column.push(count);
            }
            columns.cost_nanos.push(row.cost_nanos);
        }
        columns
    }
}

impl UsageRow {
    fn new(usage: &ModelUsage) -> Self {
        let model = usage.model.as_deref().unwrap_or_default();
        let UsageSum { service_calls, tool_calls, tokens, cost_nanos, .. } = usage.sum;
        Self {
            model: stored_key::half(model),
            long_model: stored_key::long(model),
            counts: [
                service_calls,
                tool_calls,
                tokens.input_tokens,
                tokens.cached_input_tokens,
                tokens.output_tokens,
                tokens.reasoning_tokens,
            ]
            .map(number),
            cost_nanos: cost_nanos.map(number),
        }
    }
}

/// What an `UPDATE` of the row of a conversation, as `c`, sets for a write that tells these of its run;
/// `at` is null where it tells nothing.
pub(crate) fn counted(at: &str, run: &str, mode: &str) -> String {
    format!(
        "last_active = greatest(c.last_active, {at}), mode = coalesce({mode}, c.mode),
         runs = {runs}, last_run = {last_run}",
        runs = runs(at, run),
        last_run = last_run(at, run),
    )
}

/// A run is counted with a write whose run is not that of the write before it.
pub(crate) fn runs(at: &str, run: &str) -> String {
    format!("c.runs + CASE WHEN {at} IS NULL OR c.last_run = {run} THEN 0 ELSE 1 END")
}

pub(crate) fn last_run(at: &str, run: &str) -> String {
    format!("CASE WHEN {at} IS NULL THEN c.last_run ELSE {run} END")
}

/// The counts of a row of usage, in the order of [`UsageRow::counts`].
pub(crate) const COUNTS: [&str; 6] = [
    "service_calls",
    "tool_calls",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
];

/// The columns of a row of usage.
pub(crate) const USED: &str = "(scope, conversation, run, model, long_model, mode, began, last,
    service_calls, tool_calls, input_tokens, cached_input_tokens, output_tokens, reasoning_tokens,
    cost_nanos)";

/// What becomes of a row of usage, as `u`, that is there. No sum of two counts overflows:
/// [`UsageSum::LARGEST`].
pub(crate) fn used_again() -> String {
    let largest = UsageSum::LARGEST;
    let added = |count: &str| format!("least(u.{count} + excluded.{count}, {largest})");
    let counts = COUNTS.map(|count| format!("{count} = {}", added(count)));
    format!(
        "ON CONFLICT (scope, conversation, run, model) DO UPDATE SET
             mode = coalesce(excluded.mode, u.mode), last = greatest(u.last, excluded.last),
             {counts},
             cost_nanos = CASE WHEN u.cost_nanos IS NULL THEN excluded.cost_nanos
                 WHEN excluded.cost_nanos IS NULL THEN u.cost_nanos ELSE {cost} END",
        counts = counts.join(", "),
        cost = added("cost_nanos"),
    )
}
