//! The page of statistics about tools: the number of calls of each tool, their outcomes and their
//! durations.

use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tower_chat_layers::store::{DayTotals, InvocationQuery, ToolCallQueries, ToolTotals, UtcDay};

use super::{Answer, Failure, Frame, State, html};
use crate::view::{Excerpt, counted, duration};

/// The number of days, including today, in the chart and in [`Recent`].
const DAYS: u64 = 30;

/// The maximum number of tools in a page, because a model can call any number of names.
const TOOLS: usize = 200;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    scope: Option<String>,
}

#[derive(Template)]
#[template(path = "tools.html")]
struct ToolsPage {
    frame: Frame,
    totals: Vec<Totals>,
    recent: Vec<Recent>,
    days: Vec<Column>,
    note: Option<String>,
}

/// The statistics over all calls of a tool.
struct Totals {
    name: String,
    calls: u64,
    errors: u64,
    /// The percentage of failed calls among the calls that have ended.
    error_rate: String,
    /// The number of calls that have not ended.
    open: u64,
    /// The mean duration of the calls that have ended.
    mean: String,
}

/// The statistics over the calls of a tool in the last [`DAYS`] days.
struct Recent {
    name: String,
    calls: u64,
    median: String,
    p90: String,
    p99: String,
}

/// The calls of a day, as a column of a chart whose height is 100 units.
struct Column {
    label: String,
    calls: u64,
    /// The horizontal position of the column in the chart.
    left: usize,
    /// The height of the part of the column for calls without an error.
    good: u64,
    /// The height of the part of the column for calls with an error.
    bad: u64,
}

/// Returns the page. The store computes the statistics, and returns no individual calls.
pub(crate) async fn tools(inspector: State, Query(wanted): Query<Wanted>) -> Answer {
    let scope = inspector.scope(wanted.scope.as_deref())?.ok_or_else(Failure::no_scope)?;
    let totals = inspector.store.tool_totals(&InvocationQuery::in_scope(scope.as_str())).await?;
    let now = SystemTime::now();
    let first_day = UtcDay::of(now).days_since_1970() - (DAYS as i64 - 1);
    let since = UtcDay::from_days(first_day).start().unwrap_or(SystemTime::UNIX_EPOCH);
    let query = InvocationQuery::in_scope(scope.as_str()).started_in(since..now + DAY);
    let recent = inspector.store.tool_totals(&query).await?;
    let more = totals.len().saturating_sub(TOOLS);
    html(&ToolsPage {
        frame: Frame::new(&inspector, "Tools", Some(&scope)),
        totals: totals.iter().take(TOOLS).map(Totals::of).collect(),
        recent: recent.iter().take(TOOLS).map(Recent::of).collect(),
        days: days(&recent, first_day),
        note: (more > 0).then(|| format!("Not listed: {}.", counted(&more, "more tool"))),
    })
}

impl Totals {
    fn of(totals: &ToolTotals) -> Self {
        let done = totals.calls.saturating_sub(totals.open);
        let rate = (done > 0).then(|| totals.errors as f64 * 100.0 / done as f64);
        let mean = u32::try_from(done).ok().filter(|done| *done > 0);
        Self {
            name: Excerpt::of(&totals.name).text,
            calls: totals.calls,
            errors: totals.errors,
            error_rate: rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1} %")),
            open: totals.open,
            mean: mean.map_or_else(|| "-".to_owned(), |done| duration(totals.duration / done)),
        }
    }
}

impl Recent {
    fn of(totals: &ToolTotals) -> Self {
        let at = |percent: u64| match totals.times.percentile(percent) {
            Some(time) => duration(time),
            None => "-".to_owned(),
        };
        Self {
            name: Excerpt::of(&totals.name).text,
            calls: totals.times.calls(),
            median: at(50),
            p90: at(90),
            p99: at(99),
        }
    }
}

/// Returns one column for each of [`DAYS`] days from `first`, in days since 1970-01-01.
fn days(totals: &[ToolTotals], first: i64) -> Vec<Column> {
    let of_day = |day: UtcDay| {
        let of_tools = totals.iter().filter_map(|tool| tool.days.get(&day));
        of_tools.fold(DayTotals::default(), |sum, of_tool| DayTotals {
            calls: sum.calls.saturating_add(of_tool.calls),
            errors: sum.errors.saturating_add(of_tool.errors),
        })
    };
    let days = (0..DAYS as i64).map(|index| UtcDay::from_days(first.saturating_add(index)));
    let counted: Vec<_> = days.map(|day| (day, of_day(day))).collect();
    let max = counted.iter().map(|(_, of_day)| of_day.calls).max().unwrap_or(0).max(1);
    let height = |calls: u64| (u128::from(calls) * 100 / u128::from(max)) as u64;
    let column = |(index, (day, of_day)): (usize, &(UtcDay, DayTotals))| {
        let bad = height(of_day.errors);
        Column {
            label: day.to_string(),
            calls: of_day.calls,
            left: index * 20,
            good: height(of_day.calls).saturating_sub(bad),
            bad,
        }
    };
    counted.iter().enumerate().map(column).collect()
}

#[cfg(test)]
mod tests {
    use tower_chat_layers::ToolStatus;

    use super::*;

    #[test]
    fn the_calls_of_all_tools_are_added_up_for_each_day() {
        let at = |day: u64| Some(SystemTime::UNIX_EPOCH + DAY * day as u32);
        let (mut find, mut pay) = (ToolTotals::new("find"), ToolTotals::new("pay"));
        find.count(ToolStatus::Ok, at(100), None);
        find.count(ToolStatus::Error, at(101), None);
        pay.count(ToolStatus::Ok, at(101), None);
        pay.count(ToolStatus::Pending, None, None);
        let columns = days(&[find, pay], 100);
        let shown: Vec<_> = columns.iter().map(|day| (day.calls, day.good, day.bad)).collect();
        assert_eq!(shown[..3], [(1, 50, 0), (2, 50, 50), (0, 0, 0)]);
        assert_eq!((columns.len(), &*columns[0].label), (30, "1970-04-11"));
    }
}
