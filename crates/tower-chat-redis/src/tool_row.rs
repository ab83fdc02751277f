//! Writing and reading rows of the record of tool calls.
//!
//! A row begins with a text that the scripts read. This text consists of the status, the start
//! time, the sequence number of the result's message (`-` for a missing value), the length of the
//! tool's name in bytes, a colon, and the name. The other columns follow as JSON.

use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower_chat_core::store::{
    SequencePosition,
    author::{ToolColumns, ToolRecord},
};

use crate::script::Call;

/// The columns that the scripts do not read, in JSON.
#[derive(Serialize, Deserialize)]
struct Rest {
    round: u32,
    call_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_index: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<i64>,
}

/// Returns one row for each call. If there are several rows for a call, the last one is used.
pub(crate) fn last_of_each(records: &[ToolRecord]) -> BTreeMap<SequencePosition, &ToolRecord> {
    records.iter().map(|record| (record.call, record)).collect()
}

/// Adds rows to the arguments of the script `append.lua`.
pub(crate) fn push(call: &mut Call, records: &BTreeMap<SequencePosition, &ToolRecord>) {
    for (position, record) in records {
        call.push(member(*position));
        call.push(position.sequence);
        call.push(record.status.as_str());
        call.push(write(record));
    }
}

/// Returns the name of a call, as the keys `tools`, `calls` and `pending` contain it. The names of
/// the calls in one message have the byte order of the calls.
pub(crate) fn member(position: SequencePosition) -> String {
    format!("{}:{:010}", position.sequence, position.index)
}

/// Parses the name of a call.
pub(crate) fn position(member: &str) -> Result<SequencePosition, String> {
    let parts = member.split_once(':');
    let position = parts.and_then(|(sequence, index)| {
        Some(SequencePosition { sequence: sequence.parse().ok()?, index: index.parse().ok()? })
    });
    position.ok_or_else(|| format!("there is no call {member:?}"))
}

/// Returns the stored form of a row.
///
/// # Panics
///
/// Never: every result has a JSON form, because all map keys in it are strings.
pub(crate) fn write(record: &ToolRecord) -> Vec<u8> {
    let columns = record.columns();
    let rest = columns.result.map(RawValue::from_string).transpose().and_then(|result| {
        serde_json::to_string(&Rest {
            round: columns.round_index,
            call_id: columns.call_id,
            result_index: columns.result_index,
            result,
            error: columns.error,
            finished: columns.finished,
        })
    });
    #[allow(clippy::expect_used, reason = "all map keys are strings")]
    let rest = rest.expect("a row has a JSON form");
    let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let started = or_dash(columns.started.map(|time| time.to_string()));
    let in_message = or_dash(columns.result_sequence.map(|sequence| sequence.to_string()));
    let (status, name) = (columns.status, columns.name);
    format!("{status} {started} {in_message} {}:{name}{rest}", name.len()).into_bytes()
}

/// Reads the row of a call.
///
/// # Errors
///
/// Returns a description of the damage in the row.
pub(crate) fn read(call: SequencePosition, stored: &[u8]) -> Result<ToolRecord, String> {
    let stored = std::str::from_utf8(stored).map_err(|error| format!("it is damaged: {error}"))?;
    let damaged = || "it is damaged: it has no valid first fields".to_owned();
    let mut words = stored.splitn(4, ' ');
    let mut word = || words.next().ok_or_else(damaged);
    let (status, started, in_message, rest) = (word()?, word()?, word()?, word()?);
    let (length, rest) = rest.split_once(':').ok_or_else(damaged)?;
    let length: usize = length.parse().map_err(|_| damaged())?;
    let (name, rest) = rest.split_at_checked(length).ok_or_else(damaged)?;
    let rest: Rest =
        serde_json::from_str(rest).map_err(|error| format!("it is damaged: {error}"))?;
    fn number<T: FromStr>(word: &str) -> Result<Option<T>, T::Err> {
        if word == "-" { Ok(None) } else { word.parse().map(Some) }
    }
    let columns = ToolColumns {
        sequence: call.sequence,
        call_index: call.index,
        round_index: rest.round,
        call_id: rest.call_id,
        name: name.to_owned(),
        status: status.to_owned(),
        result_sequence: number(in_message).map_err(|_| damaged())?,
        result_index: rest.result_index,
        result: rest.result.map(|json| json.get().to_owned()),
        error: rest.error,
        started: number(started).map_err(|_| damaged())?,
        finished: rest.finished,
    };
    columns.into_record().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use tower_chat_core::{ToolResult, ToolStatus, store::author::RecordedResult};

    use super::*;

    const CALL: SequencePosition = SequencePosition { sequence: 3, index: 12 };

    #[test]
    fn a_row_with_any_tool_name_is_read_as_it_was_written() {
        for name in ["", "weather", "a b:c", "12:x{\"", "\0\n\u{1F600}"] {
            let mut record = ToolRecord::pending(CALL, 2, "id \0", name);
            assert_eq!(read(CALL, &write(&record)), Ok(record.clone()));
            record.status = ToolStatus::PendingApproval;
            record.held_until = Some(UNIX_EPOCH + Duration::from_millis(5));
            assert_eq!(read(CALL, &write(&record)), Ok(record.clone()));
            record.held_until = None;
            record.status = ToolStatus::Error;
            record.error = Some("went wrong".to_owned());
            record.started_at = Some(UNIX_EPOCH - Duration::from_millis(5));
            record.finished_at = Some(UNIX_EPOCH + Duration::from_millis(5));
            let result = SequencePosition { sequence: u64::MAX, index: u32::MAX };
            record.result = RecordedResult::InMessage(result);
            assert_eq!(read(CALL, &write(&record)), Ok(record.clone()));
            record.result = RecordedResult::Apart(ToolResult::new("id", "done").into());
            assert_eq!(read(CALL, &write(&record)), Ok(record));
        }
    }

    #[test]
    fn a_member_that_is_not_a_row_is_an_error() {
        let row = write(&ToolRecord::pending(CALL, 0, "id", "name"));
        for length in 0..row.len() {
            assert!(read(CALL, &row[..length]).is_err(), "{length}");
        }
        assert!(read(CALL, b"pending - 7 4:name{\"round\":0,\"call_id\":\"id\"}").is_err());
        assert!(read(CALL, b"gone - - 4:name{\"round\":0,\"call_id\":\"id\"}").is_err());
    }

    #[test]
    fn members_of_calls_sort_by_position() {
        assert_eq!(position(&member(CALL)), Ok(CALL));
        let at = |index| member(SequencePosition { sequence: 3, index });
        assert!(at(2) < at(12) && at(999_999_999) < at(u32::MAX));
        assert!(position("3").is_err() && position("x:1").is_err());
    }
}
