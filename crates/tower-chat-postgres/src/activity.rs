//! The activity of a write (time, run, mode and usage), as values of columns.

use std::time::SystemTime;

use tower_chat_core::{
    PersistenceMode,
    store::{
        ModelUsage, RunActivity, UsageSum,
        author::{Write, milliseconds},
    },
};

use crate::{stored_key, tool_row::number};

/// The activity of a write.
#[derive(Debug)]
pub(crate) struct Activity {
    /// The time of the write; `None` if the write has no activity. All times in this struct are in
    /// milliseconds since 1970.
    pub(crate) at: Option<i64>,
    /// The start of the run, and the creation time of a conversation that the write creates.
    pub(crate) began_at: i64,
    pub(crate) mode: Option<&'static str>,
    /// The usage, with one row for each model, or one row without a model if there is no usage.
    pub(crate) usage: Vec<UsageRow>,
}

/// The usage of one model that a write adds.
#[derive(Debug)]
pub(crate) struct UsageRow {
    /// The model as the primary key contains it: empty if the model is unknown.
    pub(crate) model: Vec<u8>,
    pub(crate) long_model: Option<Vec<u8>>,
    /// Service calls, tool calls, and the tokens: input, cached input, output and reasoning.
    pub(crate) counts: [i64; 6],
    /// The cost in billionths of a currency unit; `None` if the cost is unknown.
    pub(crate) cost_nanos: Option<i64>,
}

/// The usage rows of a write, as one list for each column.
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
            began_at: milliseconds::of(
                activity.map_or_else(SystemTime::now, RunActivity::began_at),
            ),
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
            model: stored_key::key_part(model),
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

/// Returns the assignments of an `UPDATE` that adds the activity of a write to the conversation's
/// row, which has the alias `c`. The arguments are SQL expressions. The value of `at` is null if
/// the write has no activity.
pub(crate) fn counted(at: &str, run: &str, mode: &str) -> String {
    format!(
        "last_active = greatest(c.last_active, {at}), mode = coalesce({mode}, c.mode),
         runs = {runs}, last_run = {last_run}",
        runs = runs(at, run),
        last_run = last_run(at, run),
    )
}

/// Returns the SQL expression for the number of runs after a write: 1 more if the write belongs to
/// another run than the previous write.
pub(crate) fn runs(at: &str, run: &str) -> String {
    format!("c.runs + CASE WHEN {at} IS NULL OR c.last_run = {run} THEN 0 ELSE 1 END")
}

/// Returns the SQL expression for the last run after a write: the run of the write, if it has an
/// activity.
pub(crate) fn last_run(at: &str, run: &str) -> String {
    format!("CASE WHEN {at} IS NULL THEN c.last_run ELSE {run} END")
}

/// The columns with counts, in the order of [`UsageRow::counts`].
pub(crate) const COUNTS: [&str; 6] = [
    "service_calls",
    "tool_calls",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
];

/// The columns of a usage row.
pub(crate) const USAGE_COLUMNS: &str =
    "(scope, conversation, run, model, long_model, mode, began, last,
    service_calls, tool_calls, input_tokens, cached_input_tokens, output_tokens, reasoning_tokens,
    cost_nanos)";

/// Returns the clause `ON CONFLICT`, which adds the usage of a write to an existing row (alias
/// `u`). A sum of two counts does not overflow, because each is at most [`UsageSum::LARGEST`].
pub(crate) fn add_usage_on_conflict() -> String {
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
