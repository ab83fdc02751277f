//! Writing and reading rows of the record of tool calls.

use std::collections::BTreeMap;

use tokio_postgres::{Row, types::FromSqlOwned};
use tower_chat_core::store::author::{ToolColumns, ToolRecord};

use crate::parameter::Parameter;

/// The columns of a row of the record of tool calls. PostgreSQL's `text` cannot contain U+0000, so
/// that most texts are bytes.
#[derive(Debug)]
pub(crate) struct ToolRow {
    pub(crate) sequence: i64,
    call_index: i64,
    round_index: i64,
    call_id: Vec<u8>,
    name: Vec<u8>,
    status: String,
    result_sequence: Option<i64>,
    result_index: Option<i64>,
    result: Option<String>,
    error: Option<Vec<u8>>,
    started: Option<i64>,
    finished: Option<i64>,
}

/// The rows as parameters of a statement, with one list for each column.
#[derive(Debug, Default)]
pub(crate) struct ToolRows {
    pub(crate) sequences: Vec<i64>,
    pub(crate) call_indexes: Vec<i64>,
    pub(crate) round_indexes: Vec<i64>,
    pub(crate) call_ids: Vec<Vec<u8>>,
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) statuses: Vec<String>,
    pub(crate) result_sequences: Vec<Option<i64>>,
    pub(crate) result_indexes: Vec<Option<i64>>,
    pub(crate) results: Vec<Option<String>>,
    pub(crate) errors: Vec<Option<Vec<u8>>>,
    pub(crate) started: Vec<Option<i64>>,
    pub(crate) finished: Vec<Option<i64>>,
}

/// Returns the rows of a write, only the last one for each call: an `INSERT ... ON CONFLICT`
/// statement cannot change a row twice.
pub(crate) fn rows(records: &[ToolRecord]) -> Vec<ToolRow> {
    let last: BTreeMap<_, _> = records.iter().map(|record| (record.call, record)).collect();
    last.into_values().map(ToolRow::new).collect()
}

impl ToolRow {
    pub(crate) fn new(record: &ToolRecord) -> Self {
        let columns = record.columns();
        Self {
            sequence: number(columns.sequence),
            call_index: columns.call_index.into(),
            round_index: columns.round_index.into(),
            call_id: columns.call_id.into_bytes(),
            name: columns.name.into_bytes(),
            status: columns.status,
            result_sequence: columns.result_sequence.map(number),
            result_index: columns.result_index.map(i64::from),
            result: columns.result,
            error: columns.error.map(String::into_bytes),
            started: columns.started,
            finished: columns.finished,
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

impl ToolRows {
    /// Returns the lists for all columns after the conversation's key.
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

impl FromIterator<ToolRow> for ToolRows {
    fn from_iter<Rows: IntoIterator<Item = ToolRow>>(rows: Rows) -> Self {
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

/// Converts a sequence number to the type of a column.
pub(crate) fn number(sequence: u64) -> i64 {
    i64::try_from(sequence).unwrap_or(i64::MAX)
}

/// Reads a row of the record of tool calls. `sequence` is the sequence number of the message that
/// contains the call, and `first` is the index of the column with the call's index.
///
/// # Errors
///
/// Returns a description of the damage in the row.
pub(crate) fn read(row: &Row, first: usize, sequence: u64) -> Result<ToolRecord, String> {
    let result_sequence: Option<i64> = column(row, first + 5)?;
    let unsigned = |sequence| {
        u64::try_from(sequence).map_err(|_| format!("its result cannot be in message {sequence}"))
    };
    let result_index: Option<i64> = column(row, first + 6)?;
    let columns = ToolColumns {
        sequence,
        call_index: small(row, first)?,
        round_index: small(row, first + 1)?,
        call_id: text(row, first + 2)?.unwrap_or_default(),
        name: text(row, first + 3)?.unwrap_or_default(),
        status: column(row, first + 4)?,
        result_sequence: result_sequence.map(unsigned).transpose()?,
        result_index: result_index.map(|_| small(row, first + 6)).transpose()?,
        result: column(row, first + 7)?,
        error: text(row, first + 8)?,
        started: column(row, first + 9)?,
        finished: column(row, first + 10)?,
    };
    columns.into_record().map_err(|error| error.to_string())
}

fn small(row: &Row, index: usize) -> Result<u32, String> {
    let stored: i64 = column(row, index)?;
    u32::try_from(stored).map_err(|_| format!("its {} cannot be {stored}", name(row, index)))
}

/// Reads text from a column of type `bytea`.
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
