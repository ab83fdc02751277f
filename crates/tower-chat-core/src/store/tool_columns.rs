//! The columns of a row of the record of tool calls.

use serde::{Deserialize, Serialize};

use super::{
    SequencePosition,
    author::{RecordedResult, ToolRecord, milliseconds},
};
use crate::{ParseToolStatusError, ToolResult};

/// The stored form of a [`ToolRecord`]: one value for each column of a table.
///
/// ```
/// use tower_chat_core::store::{SequencePosition, author::ToolRecord};
///
/// let call = SequencePosition { sequence: 1, index: 0 };
/// let record = ToolRecord::pending(call, 0, "call_1", "weather");
/// let columns = record.columns();
/// assert_eq!((&*columns.name, &*columns.status), ("weather", "pending"));
/// assert_eq!(columns.into_record()?, record);
/// # Ok::<(), tower_chat_core::store::author::ToolColumnsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolColumns {
    /// The sequence number of the message with the call, from 1.
    pub sequence: u64,
    /// The index of the call in its message, from 0.
    pub call_index: u32,
    /// The index of the call's round (an answer with calls, and their results) in its run, from 0.
    pub round_index: u32,
    /// The call id that the model receives.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The status of the call, as text.
    pub status: String,
    /// The sequence number of the message with the result.
    pub result_sequence: Option<u64>,
    /// The index of the result in its message.
    pub result_index: Option<u32>,
    /// The result as JSON, if no message contains the result.
    pub result: Option<String>,
    /// A description of the failure for people.
    pub error: Option<String>,
    /// The time at which the tool started, in milliseconds since 1970.
    pub started: Option<i64>,
    /// [The end of the call](ToolRecord::end), in milliseconds since 1970.
    pub finished: Option<i64>,
}

/// Stored columns do not form a valid row of the record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolColumnsError {
    /// The status is not the text of a [`ToolStatus`](crate::ToolStatus).
    #[error(transparent)]
    Status(#[from] ParseToolStatusError),
    /// The result is not the JSON form of a [`ToolResult`].
    #[error("its result cannot be decoded: {0}")]
    Result(#[from] serde_json::Error),
    /// The columns of the result name more than one location of the result, or only a part of its
    /// location.
    #[error("the columns of its result contradict each other")]
    Contradiction,
    /// A time is out of the range of [`SystemTime`](std::time::SystemTime).
    #[error("its time {0} is out of range")]
    Time(i64),
}

impl ToolRecord {
    /// Returns the columns of the row.
    ///
    /// # Panics
    ///
    /// Never: every result has a JSON form, because all map keys in a result are strings.
    #[must_use]
    pub fn columns(&self) -> ToolColumns {
        let (position, result) = match &self.result {
            RecordedResult::None => (None, None),
            RecordedResult::InMessage(position) => (Some(position), None),
            RecordedResult::Apart(result) => (None, Some(result)),
        };
        #[allow(clippy::expect_used, reason = "all map keys are strings")]
        let json = |result| serde_json::to_string(result).expect("a result has a JSON form");
        ToolColumns {
            sequence: self.call.sequence,
            call_index: self.call.index,
            round_index: self.round_index,
            call_id: self.call_id.clone(),
            name: self.name.clone(),
            status: self.status.as_str().to_owned(),
            result_sequence: position.map(|position| position.sequence),
            result_index: position.map(|position| position.index),
            result: result.map(json),
            error: self.error.clone(),
            started: self.started_at.map(milliseconds::of),
            finished: self.end().map(milliseconds::of),
        }
    }
}

impl ToolColumns {
    /// Returns the row with these columns.
    ///
    /// # Errors
    ///
    /// If the columns are damaged.
    pub fn into_record(self) -> Result<ToolRecord, ToolColumnsError> {
        let time = |stored: Option<i64>| {
            let time = |stored| milliseconds::time(stored).ok_or(ToolColumnsError::Time(stored));
            stored.map(time).transpose()
        };
        let call = SequencePosition { sequence: self.sequence, index: self.call_index };
        let mut record = ToolRecord::pending(call, self.round_index, self.call_id, self.name);
        record.status = self.status.parse()?;
        record.result = match (self.result_sequence, self.result_index, self.result) {
            (None, None, None) => RecordedResult::None,
            (Some(sequence), Some(index), None) => {
                RecordedResult::InMessage(SequencePosition { sequence, index })
            }
            (None, None, Some(json)) => {
                RecordedResult::Apart(serde_json::from_str::<Box<ToolResult>>(&json)?)
            }
            (Some(_), _, _) | (_, Some(_), _) => return Err(ToolColumnsError::Contradiction),
        };
        record.error = self.error;
        record.started_at = time(self.started)?;
        record.set_end(time(self.finished)?);
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::ToolStatus;

    const CALL: SequencePosition = SequencePosition { sequence: 3, index: 12 };

    #[test]
    fn a_row_comes_back() {
        let at = |milliseconds| Some(UNIX_EPOCH + Duration::from_millis(milliseconds));
        let pending = ToolRecord::pending(CALL, 2, "id \0", "a b");
        let held = ToolRecord {
            status: ToolStatus::PendingApproval,
            held_until: at(5),
            ..pending.clone()
        };
        let failed = ToolRecord {
            status: ToolStatus::Error,
            error: Some("went wrong".to_owned()),
            started_at: Some(UNIX_EPOCH - Duration::from_millis(5)),
            finished_at: at(5),
            result: RecordedResult::InMessage(SequencePosition { sequence: 4, index: 0 }),
            ..pending.clone()
        };
        let apart = ToolRecord {
            result: RecordedResult::Apart(ToolResult::new("id", "done").into()),
            ..failed.clone()
        };
        for record in [pending, held, failed, apart] {
            assert_eq!(record.columns().into_record().unwrap(), record);
        }
    }

    #[test]
    fn damaged_columns_are_an_error() {
        let whole = ToolRecord::pending(CALL, 0, "id", "name").columns();
        for (columns, expected) in [
            (ToolColumns { status: "gone".to_owned(), ..whole.clone() }, "gone"),
            (ToolColumns { result_index: Some(0), ..whole.clone() }, "contradict"),
            (ToolColumns { result_sequence: Some(4), ..whole.clone() }, "contradict"),
            (ToolColumns { result: Some("{".to_owned()), ..whole.clone() }, "decoded"),
        ] {
            let error = columns.clone().into_record().unwrap_err().to_string();
            assert!(error.contains(expected), "{columns:?}: {error}");
        }
    }
}
