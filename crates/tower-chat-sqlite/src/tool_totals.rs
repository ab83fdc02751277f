//! Counts of tool calls, from the record, which has one row for each call.

use std::time::Duration;

use rusqlite::{Connection, Row};
use tower_chat_core::{
    ToolStatus,
    store::{DayTotals, InvocationQuery, ToolTotals, UtcDay},
};

use crate::{invocations::Filter, read::NotRead};

/// Counts the calls that match a query, per tool.
pub(crate) fn tool_totals(
    connection: &Connection,
    query: &InvocationQuery,
) -> Result<Vec<ToolTotals>, NotRead> {
    let Filter { sql, values } = Filter::new(query);
    let open: Vec<String> = ToolStatus::ALL
        .into_iter()
        .filter(|status| status.is_open())
        .map(|status| format!("'{status}'"))
        .collect();
    // Unlike `sum()`, `total()` never overflows. The day is rounded down also for times before
    // 1970.
    let sql = format!(
        "SELECT t.name, count(*), count(*) FILTER (WHERE t.status = '{error}'),
             count(*) FILTER (WHERE t.status IN ({open})),
             total(max({finished} - t.started, 0)),
             CAST(max({finished} - t.started, 0) AS INTEGER) AS taken,
             CAST(CASE WHEN t.started >= 0 THEN t.started / {DAY}
                 ELSE -(({DAY} - 1 - t.started) / {DAY}) END AS INTEGER) AS day
         {sql} GROUP BY t.name, day, taken ORDER BY t.name",
        error = ToolStatus::Error,
        open = open.join(", "),
        // While a claimed call runs, `finished` contains the time until which no other process may
        // start it.
        finished = format_args!(
            "CASE WHEN t.status = '{}' AND coalesce(t.result_sequence, t.result) IS NULL THEN NULL \
             ELSE t.finished END",
            ToolStatus::PendingApproval
        ),
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut totals: Vec<ToolTotals> = Vec::new();
    while let Some(row) = rows.next()? {
        add(row, &mut totals)?;
    }
    Ok(totals)
}

/// The number of milliseconds in a day.
const DAY: i64 = 86_400_000;

/// Adds the calls of a tool that started on one day and took the same time.
fn add(row: &Row<'_>, totals: &mut Vec<ToolTotals>) -> rusqlite::Result<()> {
    let count = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    // Invalid bytes in a damaged name are replaced, so that the calls of the tool are counted.
    let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?);
    if totals.last().is_none_or(|last| last.name != name) {
        totals.push(ToolTotals::new(name));
    }
    let Some(tool) = totals.last_mut() else { return Ok(()) };
    let of_day = DayTotals { calls: count(1)?, errors: count(2)? };
    tool.calls += of_day.calls;
    tool.errors += of_day.errors;
    tool.open += count(3)?;
    let milliseconds: f64 = row.get(4)?;
    tool.duration = tool.duration.saturating_add(Duration::from_millis(milliseconds as u64));
    if let Some(taken) = row.get::<_, Option<i64>>(5)? {
        tool.times.add(Duration::from_millis(taken.cast_unsigned()), of_day.calls);
    }
    if let Some(day) = row.get::<_, Option<i64>>(6)? {
        tool.count_on(UtcDay::from_days(day), of_day);
    }
    Ok(())
}
