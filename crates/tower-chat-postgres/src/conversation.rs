//! The rows of a conversation and of its open run, which is not committed yet.

use std::{sync::Arc, time::SystemTime};

use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        Head, Lease, LeaseEnd, OpenRun, Revision, ServiceIdChange, StoreError, SummaryInForce,
        author::{LAST_SEQUENCE, LoadFrom, milliseconds},
    },
};

/// The index of the column `load_from` in the rows of the statement `conversation`.
const LOAD_FROM: usize = 17;

/// Reads the head of a conversation from the rows of the statement `conversation`. Without rows,
/// the conversation does not exist.
pub(crate) fn head(key: &ConversationKey, rows: &[Row]) -> Result<Head, StoreError> {
    let Some(row) = rows.first() else { return Ok(Head::new(Revision::ABSENT)) };
    let head = read_head(row).and_then(|head| with_rest(row, head));
    let head = head.map_err(|reason| corrupt(&format!("conversation {key}: {reason}")))?;
    head.check_range(key, LAST_SEQUENCE)?;
    Ok(head)
}

/// Reads a head from the first columns of a row.
pub(crate) fn read_head(row: &Row) -> Result<Head, String> {
    let revision = Revision {
        incarnation: column::<i64>(row, 0)?.cast_unsigned(),
        sequence: unsigned(row, 1)?,
    };
    let pruned = unsigned(row, 3)?;
    let is_open = column::<Option<&[u8]>>(row, 4)?.is_some();
    let open = if is_open { Some(open_run(row, 4)?) } else { None };
    let head = Head::new(revision).with_pruned(pruned);
    Ok(head.with_service_id(text(row, 2)?).with_open_run(open))
}

/// Adds data to a head: the number of rewrites (changes of stored messages), the summary in force,
/// and the part that the next run needs to load. The columns follow those of the head.
fn with_rest(row: &Row, head: Head) -> Result<Head, String> {
    let summary = match column::<Option<i64>>(row, 15)? {
        Some(id) => Some(SummaryInForce::new(id.cast_unsigned(), unsigned(row, 16)?)),
        None => None,
    };
    let from = column::<Option<&str>>(row, LOAD_FROM)?.and_then(LoadFrom::from_json);
    let head = head.with_rewrites(unsigned(row, 14)?).with_summary(summary);
    Ok(head.with_load_from(from.map(Arc::new)))
}

/// Returns whether a row of the statement `conversation` has this value in the column `load_from`.
pub(crate) fn has_load_from(rows: &[Row], json: &str) -> Result<bool, StoreError> {
    let Some(row) = rows.first() else { return Ok(false) };
    let stored = column::<Option<&str>>(row, LOAD_FROM).map_err(|reason| corrupt(&reason))?;
    Ok(stored == Some(json))
}

/// Reads an open run from a row. `first` is the index of the first column of the open run.
pub(crate) fn open_run(row: &Row, first: usize) -> Result<OpenRun, String> {
    let run: &[u8] = column(row, first)?;
    let run = run.try_into().map_err(|_| "a run id is not 16 bytes".to_owned())?;
    let attempt: i64 = column(row, first + 1)?;
    let lease = Lease {
        attempt: u32::try_from(attempt).map_err(|_| format!("there is no attempt {attempt}"))?,
        holder: column::<i64>(row, first + 2)?.cast_unsigned(),
        renewed_at: time(column(row, first + 4)?)?,
        until: LeaseEnd::from_stored(column::<Option<i64>>(row, first + 5)?.map(time).transpose()?),
    };
    let mut open = OpenRun::new(RunId::from_bytes(run), lease, unsigned(row, first + 6)?);
    open.opened_at = time(column(row, first + 3)?)?;
    if column(row, first + 7)? {
        let id = text(row, first + 8)?;
        open.service_id = Some(id.map_or(ServiceIdChange::Clear, ServiceIdChange::Set));
    }
    open.partial_text = text(row, first + 9)?;
    Ok(open)
}

/// Returns the error for damaged data.
pub(crate) fn corrupt(reason: &str) -> StoreError {
    StoreError::Corrupt { reason: format!("{reason}: restore it from a backup") }
}

/// Reads text from a column of type `bytea`; PostgreSQL's `text` cannot contain U+0000.
pub(crate) fn text(row: &Row, index: usize) -> Result<Option<Arc<str>>, String> {
    let Some(bytes) = column::<Option<&[u8]>>(row, index)? else { return Ok(None) };
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    Ok(Some(text.into()))
}

pub(crate) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    index: usize,
) -> Result<T, String> {
    row.try_get(index).map_err(|error| error.to_string())
}

/// Reads a number that must not be negative.
pub(crate) fn unsigned(row: &Row, index: usize) -> Result<u64, String> {
    let stored: i64 = column(row, index)?;
    u64::try_from(stored).map_err(|_| {
        let name = row.columns().get(index).map_or("number", |column| column.name());
        format!("its {name} cannot be {stored}")
    })
}

pub(crate) fn time(stored: i64) -> Result<SystemTime, String> {
    milliseconds::time(stored).ok_or_else(|| format!("there is no time {stored}"))
}
