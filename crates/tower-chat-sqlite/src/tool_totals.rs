//! Counts over the record of tool calls.

use std::time::Duration;

use rusqlite::{Connection, Row};
use tower_chat_core::{
    ToolStatus,
    store::{InvocationQuery, ToolTotals},
};

use crate::{invocations::Filter, read::NotRead};

/// The calls that fit a query, counted per tool.
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
    // Unlike sum(), total() never overflows.
    let sql = format!(
        "SELECT t.name, count(*), count(*) FILTER (WHERE t.status = '{error}'),
             count(*) FILTER (WHERE t.status IN ({open})),
             total(max(t.finished - t.started, 0))
         {sql} GROUP BY t.name ORDER BY t.name",
        error = ToolStatus::Error,
        open = open.join(", "),
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(values), totals)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn totals(row: &Row<'_>) -> rusqlite::Result<ToolTotals> {
    let count = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    // A damaged name is counted as well as another.
    let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned();
    let mut totals = ToolTotals::new(name);
    totals.calls = count(1)?;
    totals.errors = count(2)?;
    totals.open = count(3)?;
    let milliseconds: f64 = row.get(4)?;
    totals.duration = Duration::from_millis(milliseconds as u64);
    Ok(totals)
}
