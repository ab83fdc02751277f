//! Writing and reading rows of the record of tool calls, which has one row for each call.

use rusqlite::{Connection, Row, params, types::FromSql};
use tower_chat_core::store::author::{ToolColumns, ToolRecord};

use crate::row_key;

/// The columns after the row key, in the order in which [`read`] expects them.
pub(crate) const COLUMNS: &str = "call_index, round_index, call_id, name, status, \
    result_sequence, result_index, result, error, started, finished";

/// Writes rows of the record of tool calls. Each row replaces an existing row of the same call.
pub(crate) fn put<'a>(
    connection: &Connection,
    conversation: i64,
    rows: impl IntoIterator<Item = &'a ToolColumns>,
) -> rusqlite::Result<()> {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let mut put = connection.prepare_cached(
        // The statement names no columns, because parsing their names costs more than writing the
        // row. The values must be in the order of the columns of the table.
        "REPLACE INTO tool_invocations VALUES
            (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    for row in rows {
        put.execute(params![
            row_key::of_message(conversation, row.sequence),
            row.call_index,
            row.round_index,
            row.call_id,
            row.name,
            row.status,
            // Sequence numbers have at most 32 bits, so that the default value is never used.
            row.result_sequence.map(|sequence| i64::try_from(sequence).unwrap_or(i64::MAX)),
            row.result_index,
            row.result,
            row.error,
            row.started,
            row.finished,
        ])?;
    }
    Ok(())
}

/// Reads a row of the record of tool calls. `sequence` is the sequence number of the message that
/// contains the call, and `first` is the index of the first of the [`COLUMNS`].
///
/// # Errors
///
/// Returns a description of the damage in the row.
pub(crate) fn read(row: &Row<'_>, first: usize, sequence: u64) -> Result<ToolRecord, String> {
    let result_sequence: Option<i64> = column(row, first + 5)?;
    let unsigned = |sequence| {
        u64::try_from(sequence).map_err(|_| {
            format!("the sequence number of its result is {sequence}, which is out of range")
        })
    };
    let columns = ToolColumns {
        sequence,
        call_index: column(row, first)?,
        round_index: column(row, first + 1)?,
        call_id: column(row, first + 2)?,
        name: column(row, first + 3)?,
        status: column(row, first + 4)?,
        result_sequence: result_sequence.map(unsigned).transpose()?,
        result_index: column(row, first + 6)?,
        result: column(row, first + 7)?,
        error: column(row, first + 8)?,
        started: column(row, first + 9)?,
        finished: column(row, first + 10)?,
    };
    columns.into_record().map_err(|error| error.to_string())
}

fn column<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, String> {
    row.get(index).map_err(|error| {
        let name = row.as_ref().column_name(index).unwrap_or("row");
        format!("its {name} is damaged: {error}")
    })
}
