//! The rows that a write adds to the record of tool calls.

use std::collections::HashMap;

use tower_chat_core::store::{SequencePosition, author::ToolRecord};

/// Rows in the order in which they were added, at most one for each call.
#[derive(Debug, Default)]
pub(super) struct Records {
    rows: Vec<ToolRecord>,
    by_call: HashMap<SequencePosition, usize>,
}

impl Records {
    pub(super) fn insert(&mut self, row: ToolRecord) {
        match self.by_call.get(&row.call).and_then(|index| self.rows.get_mut(*index)) {
            Some(known) => *known = row,
            None => {
                self.by_call.insert(row.call, self.rows.len());
                self.rows.push(row);
            }
        }
    }

    pub(super) fn get(&self, call: SequencePosition) -> Option<&ToolRecord> {
        self.rows.get(*self.by_call.get(&call)?)
    }

    pub(super) fn rows(&self) -> &[ToolRecord] {
        &self.rows
    }

    pub(super) fn rows_mut(&mut self) -> &mut [ToolRecord] {
        &mut self.rows
    }

    pub(super) fn into_rows(self) -> Vec<ToolRecord> {
        self.rows
    }
}
