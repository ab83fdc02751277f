//! Tools: how often they were called, how it went, and how long it took.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tower_chat_layers::{
    ToolInvocation, ToolStatus,
    store::{InvocationQuery, UtcDay},
};

use super::{Answer, Failure, Frame, State, html};
use crate::view::{duration, visible};

/// How many days back calls are counted by day.
const DAYS: u64 = 30;

/// How many calls are read for percentiles and days.
const MOST_CALLS: usize = 50_000;

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
    /// Calls whose record cannot be read.
    unreadable: Vec<String>,
    note: Option<String>,
}

/// All calls of a tool.
struct Totals {
    name: String,
    calls: u64,
    errors: u64,
    error_rate: String,
    open: u64,
    mean: String,
}

/// The recent calls of a tool.
struct Recent {
    name: String,
    calls: usize,
    median: String,
    p90: String,
    p99: String,
}

/// The calls of a day, for a chart whose height is 100.
struct Column {
    label: String,
    calls: usize,
    left: usize,
    good: usize,
    bad: usize,
}

pub(crate) async fn tools(inspector: State, Query(wanted): Query<Wanted>) -> Answer {
    let scope = inspector.scope(wanted.scope.as_deref())?.ok_or_else(Failure::no_scope)?;
    let totals = inspector.store.tool_totals(&InvocationQuery::in_scope(scope.as_str())).await?;
    let now = SystemTime::now();
    let first_day = UtcDay::of(now).days_since_1970() - (DAYS as i64 - 1);
    let since = UtcDay::from_days(first_day).start().unwrap_or(SystemTime::UNIX_EPOCH);
    let query = InvocationQuery::in_scope(scope.as_str())
        .started_in(since..now + DAY)
        .with_limit(MOST_CALLS);
    let invocations = inspector.store.invocations(&query).await?;
    let unreadable = invocations.unreadable.iter().map(|it| visible(&it.to_string())).collect();
    let calls: Vec<ToolInvocation> = invocations.found.into_iter().map(|(_, call)| call).collect();
    let note = (calls.len() == MOST_CALLS).then(|| {
        format!("More than {MOST_CALLS} calls: days and percentiles have the first ones.")
    });
    html(&ToolsPage {
        frame: Frame::new(&inspector, "Tools", Some(&scope)),
        totals: totals.iter().map(Totals::of).collect(),
        recent: recent(&calls),
        days: days(&calls, first_day),
        unreadable,
        note,
    })
}

impl Totals {
    fn of(totals: &tower_chat_layers::store::ToolTotals) -> Self {
        let done = totals.calls.saturating_sub(totals.open);
        let rate = (done > 0).then(|| totals.errors as f64 * 100.0 / done as f64);
        let mean = u32::try_from(done).ok().filter(|done| *done > 0);
        Self {
            name: visible(&totals.name),
            calls: totals.calls,
            errors: totals.errors,
            error_rate: rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1} %")),
            open: totals.open,
            mean: mean.map_or_else(|| "-".to_owned(), |done| duration(totals.duration / done)),
        }
    }
}

fn elapsed(call: &ToolInvocation) -> Option<Duration> {
    call.finished_at?.duration_since(call.started_at?).ok()
}

/// In the byte order of the names.
fn recent(calls: &[ToolInvocation]) -> Vec<Recent> {
    let mut of_tool: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for call in calls {
        of_tool.entry(&call.name).or_default().extend(elapsed(call));
    }
    let recent = |(name, mut times): (&str, Vec<Duration>)| {
        times.sort_unstable();
        let at = |percent: usize| match percentile(&times, percent) {
            Some(time) => duration(time),
            None => "-".to_owned(),
        };
        let (median, p90, p99) = (at(50), at(90), at(99));
        Recent { name: visible(name), calls: times.len(), median, p90, p99 }
    };
    of_tool.into_iter().map(recent).collect()
}

/// The least of sorted times that so many of a hundred do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

fn days(calls: &[ToolInvocation], first: i64) -> Vec<Column> {
    let mut counts = vec![(0_usize, 0_usize); DAYS as usize];
    for call in calls {
        let day = call.started_at.map(|started| UtcDay::of(started).days_since_1970() - first);
        let index = day.and_then(|day| usize::try_from(day).ok());
        let Some((all, bad)) = index.and_then(|index| counts.get_mut(index)) else { continue };
        *all += 1;
        *bad += usize::from(call.status == ToolStatus::Error);
    }
    let most = counts.iter().map(|(all, _)| *all).max().unwrap_or(0).max(1);
    let column = |(index, (all, bad)): (usize, (usize, usize))| {
        let bad_height = bad * 100 / most;
        Column {
            label: UtcDay::from_days(first + index as i64).to_string(),
            calls: all,
            left: index * 20,
            good: all * 100 / most - bad_height,
            bad: bad_height,
        }
    };
    counts.into_iter().enumerate().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_times_there_are() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        for (percent, milliseconds) in [(50, 100), (90, 180), (99, 198)] {
            assert_eq!(percentile(&times, percent), Some(Duration::from_millis(milliseconds)));
        }
        assert_eq!(percentile(&times[..1], 99), Some(Duration::from_millis(1)));
        assert_eq!(percentile(&[], 50), None);
    }
}
