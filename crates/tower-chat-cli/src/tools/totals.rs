//! The totals of the calls of each tool.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use tower_chat::{store::ToolTotals, tool::ToolInvocation};

use super::listing::{ListedCall, Listing};
use crate::output::table;

/// The totals of tools, in the byte order of their names.
#[derive(Debug, Default)]
pub(super) struct Totals(BTreeMap<String, ToolTotals>);

impl Totals {
    pub(super) fn count(&mut self, call: &ToolInvocation) {
        let totals = match self.0.get_mut(&call.name) {
            Some(totals) => totals,
            None => self.0.entry(call.name.clone()).or_insert_with(|| ToolTotals::new(&call.name)),
        };
        totals.count(call.status, call.started_at, call.finished_at);
    }

    /// Returns the totals, and the calls of `listing`, as a JSON object in one line.
    pub(super) fn to_json(&self, listing: Option<Listing>) -> String {
        let tools: Vec<ToolLine<'_>> = self.0.values().map(ToolLine::of).collect();
        let total = tools.iter().map(|tool| tool.calls).sum();
        let calls = listing.map(|listing| listing.calls);
        #[allow(clippy::expect_used, reason = "texts and numbers have a JSON form")]
        serde_json::to_string(&Summary { total, tools, calls }).expect("it has a JSON form")
    }

    /// Formats the totals as a table with a heading, a line for each tool, and the sum.
    pub(super) fn to_lines(&self) -> Vec<String> {
        let mut sum = ToolTotals::new("total");
        for tool in self.0.values() {
            sum.calls += tool.calls;
            sum.errors += tool.errors;
            sum.open += tool.open;
            sum.duration = sum.duration.saturating_add(tool.duration);
        }
        let row = |tool: &ToolTotals| {
            [
                tool.name.clone(),
                tool.calls.to_string(),
                tool.errors.to_string(),
                tool.open.to_string(),
                format!("{:.3}", tool.duration.as_secs_f64()),
            ]
        };
        let heading = ["tool", "calls", "errors", "open", "seconds"].map(str::to_owned);
        let mut rows = vec![heading];
        rows.extend(self.0.values().chain([&sum]).map(row));
        table(&rows)
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    total: u64,
    tools: Vec<ToolLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<ListedCall>>,
}

#[derive(Serialize)]
struct ToolLine<'a> {
    name: &'a str,
    calls: u64,
    errors: u64,
    open: u64,
    duration_ms: u64,
}

impl<'a> ToolLine<'a> {
    fn of(totals: &'a ToolTotals) -> Self {
        let ToolTotals { name, calls, errors, open, duration, .. } = totals;
        let duration_ms = milliseconds(*duration);
        Self { name, calls: *calls, errors: *errors, open: *open, duration_ms }
    }
}

/// Returns the number of whole milliseconds of a duration, at most `u64::MAX`.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
