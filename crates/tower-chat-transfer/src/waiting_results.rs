//! The search for the messages that contain the results of tool calls.
//!
//! The *record of tool calls* is a part of a store: one row for each call, with its status, times
//! and result.

use std::collections::HashMap;

use tower_chat_core::{
    Message, ToolInvocation, ToolResult,
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};

/// The rows of the record whose results were not found in a message yet.
///
/// A query of the record returns the content of each result, but not the position of the message
/// that contains the result. If a message contains an equal result, the transferred row refers to
/// this message. Otherwise the transferred row contains the result itself.
#[derive(Default)]
pub(crate) struct WaitingResults {
    by_call_id: HashMap<Option<String>, Vec<(ToolRecord, ToolResult)>>,
}

impl WaitingResults {
    /// Adds a row that has a result. A row without a result is complete, and is returned instead.
    pub(crate) fn add(&mut self, invocation: ToolInvocation) -> Option<ToolRecord> {
        let call =
            SequencePosition { sequence: invocation.sequence, index: invocation.sequence_index };
        let ToolInvocation { round_index, call_id, name, .. } = invocation;
        let mut row = ToolRecord::pending(call, round_index, call_id, name);
        row.status = invocation.status;
        row.error = invocation.error;
        row.started_at = invocation.started_at;
        row.finished_at = invocation.finished_at;
        match invocation.result {
            None => Some(row),
            Some(result) => {
                self.by_call_id.entry(result.call_id.clone()).or_default().push((row, result));
                None
            }
        }
    }

    /// Removes and returns the rows whose results are in the message with this number.
    pub(crate) fn find_in(&mut self, number: u64, message: &Message) -> Vec<ToolRecord> {
        let mut complete = Vec::new();
        for (index, result) in (0..).zip(message.results()) {
            let Some(waiting) = self.by_call_id.get_mut(&result.call_id) else { continue };
            let Some(found) = waiting.iter().position(|(_, waiting)| waiting == result) else {
                continue;
            };
            let (mut row, _) = waiting.remove(found);
            row.result = RecordedResult::InMessage(SequencePosition { sequence: number, index });
            complete.push(row);
        }
        complete
    }

    /// Returns the rows whose results are in no message, in the order of their calls.
    pub(crate) fn apart(self) -> Vec<ToolRecord> {
        let waiting = self.by_call_id.into_values().flatten();
        let mut rows: Vec<_> = waiting
            .map(|(mut row, result)| {
                row.result = RecordedResult::Apart(Box::new(result));
                row
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.call);
        rows
    }
}
