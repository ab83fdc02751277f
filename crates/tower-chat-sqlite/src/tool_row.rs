//! Writing and reading rows of the record of tool calls.

use std::time::SystemTime;

use rusqlite::{Connection, Row, params, types::FromSql};
use tower_chat_core::{
    ParseToolStatusError, ToolResult,
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord, milliseconds},
    },
};

use crate::row_key;

/// The columns of a row from the call's index on, in the order in which [`read`] expects them.
pub(crate) const COLUMNS: &str = "call_index, round_index, call_id, name, status, \
    result_sequence, result_index, result, error, started, finished";

/// Returns the stored form of a result that is in no message.
///
/// # Panics
///
/// Never: every result has a JSON form, because all map keys in it are strings.
pub(crate) fn result_apart(record: &ToolRecord) -> Option<String> {
    match &record.result {
        RecordedResult::None | RecordedResult::InMessage(_) => None,
        RecordedResult::Apart(result) =>
        {
            #[allow(clippy::expect_used, reason = "all map keys are strings")]
            Some(serde_json::to_string(result).expect("a result has a JSON form"))
        }
    }
}

/// Writes rows of the record of a conversation, each with its [`result_apart`]. Each row replaces
/// the former row of its call.
pub(crate) fn put<'a>(
    connection: &Connection,
    conversation: i64,
    rows: impl IntoIterator<Item = (&'a ToolRecord, Option<&'a str>)>,
) -> rusqlite::Result<()> {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let mut put = connection.prepare_cached(
        // The values are in the order of the columns: parsing column names costs more than writing
        // the row.
        "REPLACE INTO tool_invocations VALUES
            (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    for (record, result) in rows {
        let in_message = match record.result {
            RecordedResult::InMessage(position) => Some(position),
            RecordedResult::None | RecordedResult::Apart(_) => None,
        };
        put.execute(params![
            row_key::of_message(conversation, record.call.sequence),
            record.call.index,
            record.round_index,
            record.call_id,
            record.name,
            record.status.as_str(),
            // No sequence number exceeds the range of the column.
            in_message.map(|position| i64::try_from(position.sequence).unwrap_or(i64::MAX)),
            in_message.map(|position| position.index),
            result,
            record.error,
            record.started_at.map(milliseconds::of),
            record.end().map(milliseconds::of),
        ])?;
    }
    Ok(())
}

/// Reads a row for a call in the message with the sequence number `sequence`. Its [`COLUMNS`] begin
/// at the index `first`.
///
/// # Errors
///
/// A description of the damage in the row.
pub(crate) fn read(row: &Row<'_>, first: usize, sequence: u64) -> Result<ToolRecord, String> {
    let call = SequencePosition { sequence, index: column(row, first)? };
    let round_index = column(row, first + 1)?;
    let call_id: String = column(row, first + 2)?;
    let name: String = column(row, first + 3)?;
    let mut record = ToolRecord::pending(call, round_index, call_id, name);
    let status: String = column(row, first + 4)?;
    record.status = status.parse().map_err(|error: ParseToolStatusError| error.to_string())?;
    record.result = result(row, first + 5)?;
    record.error = column(row, first + 8)?;
    record.started_at = time(row, first + 9)?;
    record.set_end(time(row, first + 10)?);
    Ok(record)
}

fn result(row: &Row<'_>, first: usize) -> Result<RecordedResult, String> {
    let sequence: Option<i64> = column(row, first)?;
    let index: Option<u32> = column(row, first + 1)?;
    let apart: Option<String> = column(row, first + 2)?;
    match (sequence, index, apart) {
        (None, None, None) => Ok(RecordedResult::None),
        (Some(sequence), Some(index), None) => {
            let sequence = u64::try_from(sequence).map_err(|_| {
                format!("the sequence number of its result is {sequence}, which is out of range")
            })?;
            Ok(RecordedResult::InMessage(SequencePosition { sequence, index }))
        }
        (None, None, Some(json)) => {
            let result: ToolResult = serde_json::from_str(&json)
                .map_err(|error| format!("its result cannot be decoded: {error}"))?;
            Ok(RecordedResult::Apart(Box::new(result)))
        }
        (Some(_), _, _) | (_, Some(_), _) => {
            Err("the columns of its result contradict each other".to_owned())
        }
    }
}

fn time(row: &Row<'_>, index: usize) -> Result<Option<SystemTime>, String> {
    let Some(stored) = column(row, index)? else { return Ok(None) };
    let time =
        milliseconds::time(stored).ok_or_else(|| format!("its time {stored} is out of range"))?;
    Ok(Some(time))
}

fn column<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, String> {
    row.get(index).map_err(|error| {
        let name = row.as_ref().column_name(index).unwrap_or("row");
        format!("its {name} is damaged: {error}")
    })
}
