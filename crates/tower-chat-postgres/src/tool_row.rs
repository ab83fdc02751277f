//! Writing and reading rows of the record of tool calls.

use std::{collections::BTreeMap, time::SystemTime};

use tokio_postgres::{Row, types::FromSqlOwned};
use tower_chat_core::{
    ParseToolStatusError, ToolResult,
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord, milliseconds},
    },
};

use crate::parameter::Parameter;

/// The values of a row, by column.
#[derive(Debug)]
pub(crate) struct ToolRow<'a> {
    pub(crate) sequence: i64,
    call_index: i64,
    round_index: i64,
    call_id: &'a [u8],
    name: &'a [u8],
    status: &'a str,
    result_sequence: Option<i64>,
    result_index: Option<i64>,
    result: Option<String>,
    error: Option<&'a [u8]>,
    started: Option<i64>,
    finished: Option<i64>,
}

/// The rows as parameters of a statement: one list per column.
#[derive(Debug, Default)]
pub(crate) struct ToolRows<'a> {
    pub(crate) sequences: Vec<i64>,
    pub(crate) call_indexes: Vec<i64>,
    pub(crate) round_indexes: Vec<i64>,
    pub(crate) call_ids: Vec<&'a [u8]>,
    pub(crate) names: Vec<&'a [u8]>,
    pub(crate) statuses: Vec<&'a str>,
    pub(crate) result_sequences: Vec<Option<i64>>,
    pub(crate) result_indexes: Vec<Option<i64>>,
    pub(crate) results: Vec<Option<String>>,
    pub(crate) errors: Vec<Option<&'a [u8]>>,
    pub(crate) started: Vec<Option<i64>>,
    pub(crate) finished: Vec<Option<i64>>,
}

/// Returns the rows of a write. Of several rows for one call only the last is used, because a
/// statement cannot write a row twice.
pub(crate) fn rows(records: &[ToolRecord]) -> Vec<ToolRow<'_>> {
    let last: BTreeMap<_, _> = records.iter().map(|record| (record.call, record)).collect();
    last.into_values().map(ToolRow::new).collect()
}

impl<'a> ToolRow<'a> {
    pub(crate) fn new(record: &'a ToolRecord) -> Self {
        let in_message = match record.result {
            RecordedResult::InMessage(position) => Some(position),
            RecordedResult::None | RecordedResult::Apart(_) => None,
        };
        Self {
            sequence: number(record.call.sequence),
            call_index: record.call.index.into(),
            round_index: record.round_index.into(),
            call_id: record.call_id.as_bytes(),
            name: record.name.as_bytes(),
            status: record.status.as_str(),
            result_sequence: in_message.map(|position| number(position.sequence)),
            result_index: in_message.map(|position| position.index.into()),
            result: result_apart(record),
            error: record.error.as_deref().map(str::as_bytes),
            started: record.started_at.map(milliseconds::of),
            finished: record.end().map(milliseconds::of),
        }
    }

    /// Returns the values of all columns after the conversation's key.
    pub(crate) fn values(&self) -> [&dyn Parameter; 12] {
        [
            &self.sequence,
            &self.call_index,
            &self.round_index,
            &self.call_id,
            &self.name,
            &self.status,
            &self.result_sequence,
            &self.result_index,
            &self.result,
            &self.error,
            &self.started,
            &self.finished,
        ]
    }
}

impl ToolRows<'_> {
    /// Returns the lists after the conversation's key.
    pub(crate) fn values<'v>(
        &'v self,
        scope: &'v dyn Parameter,
        conversation: &'v dyn Parameter,
    ) -> [&'v dyn Parameter; 14] {
        [
            scope,
            conversation,
            &self.sequences,
            &self.call_indexes,
            &self.round_indexes,
            &self.call_ids,
            &self.names,
            &self.statuses,
            &self.result_sequences,
            &self.result_indexes,
            &self.results,
            &self.errors,
            &self.started,
            &self.finished,
        ]
    }
}

impl<'a> FromIterator<ToolRow<'a>> for ToolRows<'a> {
    fn from_iter<Rows: IntoIterator<Item = ToolRow<'a>>>(rows: Rows) -> Self {
        let mut lists = Self::default();
        for row in rows {
            lists.sequences.push(row.sequence);
            lists.call_indexes.push(row.call_index);
            lists.round_indexes.push(row.round_index);
            lists.call_ids.push(row.call_id);
            lists.names.push(row.name);
            lists.statuses.push(row.status);
            lists.result_sequences.push(row.result_sequence);
            lists.result_indexes.push(row.result_index);
            lists.results.push(row.result);
            lists.errors.push(row.error);
            lists.started.push(row.started);
            lists.finished.push(row.finished);
        }
        lists
    }
}

/// Returns the stored form of a result that is in no message.
///
/// # Panics
///
/// Never: every result has a JSON form, because all map keys in it are strings.
fn result_apart(record: &ToolRecord) -> Option<String> {
    match &record.result {
        RecordedResult::None | RecordedResult::InMessage(_) => None,
        RecordedResult::Apart(result) =>
        {
            #[allow(clippy::expect_used, reason = "all map keys are strings")]
            Some(serde_json::to_string(result).expect("a result has a JSON form"))
        }
    }
}

/// Converts a sequence number into the type of a column. No sequence number exceeds the range of
/// the column.
pub(crate) fn number(sequence: u64) -> i64 {
    i64::try_from(sequence).unwrap_or(i64::MAX)
}

/// Reads a row for a call in the message with this sequence number. Its columns, from the call's
/// index on, begin at `first`.
///
/// # Errors
///
/// A description of the damage in the row.
pub(crate) fn read(row: &Row, first: usize, sequence: u64) -> Result<ToolRecord, String> {
    let call = SequencePosition { sequence, index: small(row, first)? };
    let round_index = small(row, first + 1)?;
    let (call_id, name) = (text(row, first + 2)?, text(row, first + 3)?);
    let mut record = ToolRecord::pending(
        call,
        round_index,
        call_id.unwrap_or_default(),
        name.unwrap_or_default(),
    );
    let status: String = column(row, first + 4)?;
    record.status = status.parse().map_err(|error: ParseToolStatusError| error.to_string())?;
    record.result = result(row, first + 5)?;
    record.error = text(row, first + 8)?;
    record.started_at = time(row, first + 9)?;
    record.set_end(time(row, first + 10)?);
    Ok(record)
}

fn result(row: &Row, first: usize) -> Result<RecordedResult, String> {
    let sequence: Option<i64> = column(row, first)?;
    let index: Option<i64> = column(row, first + 1)?;
    let apart: Option<String> = column(row, first + 2)?;
    match (sequence, index, apart) {
        (None, None, None) => Ok(RecordedResult::None),
        (Some(sequence), Some(_), None) => {
            let sequence = u64::try_from(sequence)
                .map_err(|_| format!("its result cannot be in message {sequence}"))?;
            Ok(RecordedResult::InMessage(SequencePosition {
                sequence,
                index: small(row, first + 1)?,
            }))
        }
        (None, None, Some(json)) => {
            let result: ToolResult = serde_json::from_str(&json)
                .map_err(|error| format!("its result cannot be decoded: {error}"))?;
            Ok(RecordedResult::Apart(Box::new(result)))
        }
        (Some(_), _, _) | (_, Some(_), _) => {
            Err("the fields of its result contradict each other".to_owned())
        }
    }
}

fn time(row: &Row, index: usize) -> Result<Option<SystemTime>, String> {
    let Some(stored) = column(row, index)? else { return Ok(None) };
    let time = milliseconds::time(stored).ok_or_else(|| format!("there is no time {stored}"))?;
    Ok(Some(time))
}

fn small(row: &Row, index: usize) -> Result<u32, String> {
    let stored: i64 = column(row, index)?;
    u32::try_from(stored).map_err(|_| format!("its {} cannot be {stored}", name(row, index)))
}

/// Reads text in a column of bytes. PostgreSQL's `text` cannot contain all characters.
fn text(row: &Row, index: usize) -> Result<Option<String>, String> {
    let Some(bytes) = column::<Option<Vec<u8>>>(row, index)? else { return Ok(None) };
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|error| format!("its {} is damaged: {error}", name(row, index)))
}

fn column<T: FromSqlOwned>(row: &Row, index: usize) -> Result<T, String> {
    row.try_get(index).map_err(|error| format!("its {} is damaged: {error}", name(row, index)))
}

fn name(row: &Row, index: usize) -> &str {
    row.columns().get(index).map_or("row", |column| column.name())
}
