//! The format of a line of a file: the change of the conversation by one write.

use std::{sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};
use tower_chat::{
    ConversationKey, MessageId, RunId, ToolResult, format,
    store::{
        Lease, OpenRun, SequencePosition, ServiceIdChange, StoreError,
        author::{DirectoryEntry, RecordedResult, ToolRecord, milliseconds},
    },
};

use crate::conversation::Conversation;

/// A line. The first line of a file contains the complete conversation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    scope: Arc<str>,
    id: Arc<str>,
    incarnation: u64,
    pruned: u64,
    service_id: Option<Arc<str>>,
    /// The number of the message before the first one of the line.
    after: u64,
    messages: Vec<(MessageId, String)>,
    /// Rows of the record. Each replaces an earlier row of its call.
    tools: Vec<Row>,
    open: Option<Open>,
    /// The complete directory entry. Its size grows with the number of runs.
    directory: Option<DirectoryEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    call: (u64, u32),
    round_index: u32,
    call_id: String,
    name: String,
    status: String,
    result_in: Option<(u64, u32)>,
    result: Option<ToolResult>,
    error: Option<String>,
    started: Option<i64>,
    finished: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Open {
    run: [u8; 16],
    attempt: u32,
    holder: u64,
    opened: i64,
    renewed: i64,
    until: Option<i64>,
    visible: u64,
    changes_service_id: bool,
    service_id: Option<Arc<str>>,
    partial_text: Option<Arc<str>>,
}

impl Line {
    /// Creates the line for the messages and rows that a write has added.
    pub(crate) fn grown(now: &Conversation, after: u64, tools: &[ToolRecord]) -> Self {
        let messages = now.messages_after(after);
        let stored = messages.filter_map(|(_, it)| Some((it.id?, format::encode(it))));
        Self {
            scope: now.key.scope().into(),
            id: now.key.id().into(),
            incarnation: now.incarnation,
            pruned: now.pruned,
            service_id: now.service_id.clone(),
            after,
            messages: stored.collect(),
            tools: tools.iter().map(Row::new).collect(),
            open: now.open.as_ref().map(Open::new),
            directory: now.directory.clone(),
        }
    }

    /// Creates a line with a complete conversation.
    pub(crate) fn whole(now: &Conversation) -> Self {
        let rows: Vec<ToolRecord> = now.tools.values().cloned().collect();
        Self::grown(now, now.pruned, &rows)
    }

    /// Applies the line to the conversation. Before the first line, there is no conversation.
    pub(crate) fn apply(self, before: Option<Conversation>) -> Result<Conversation, StoreError> {
        let key = ConversationKey::new(self.scope, self.id);
        let mut now = before.unwrap_or_else(|| Conversation::absent(key.clone()));
        now.incarnation = self.incarnation;
        now.pruned = self.pruned;
        now.service_id = self.service_id;
        now.directory = self.directory;
        if now.key != key || now.revision().sequence != self.after {
            return Err(corrupt(&key, "a line does not follow the one before"));
        }
        for ((id, body), sequence) in self.messages.into_iter().zip(self.after + 1..) {
            let mut message = format::decode(&body).map_err(|source| StoreError::Undecodable {
                key: key.clone(),
                sequence,
                source,
            })?;
            message.id = Some(id);
            now.messages.push(Arc::new(message));
        }
        for row in self.tools {
            let row = row.read().ok_or_else(|| corrupt(&key, "a row of its record is damaged"))?;
            now.tools.insert(row.call, row);
        }
        let open = self
            .open
            .map(|open| open.read().ok_or_else(|| corrupt(&key, "its open run is damaged")));
        now.open = open.transpose()?;
        Ok(now)
    }
}

fn corrupt(key: &ConversationKey, what: &str) -> StoreError {
    StoreError::Corrupt { reason: format!("conversation {key}: {what}") }
}

impl Row {
    fn new(record: &ToolRecord) -> Self {
        let (result_in, result) = match &record.result {
            RecordedResult::None => (None, None),
            RecordedResult::InMessage(position) => {
                (Some((position.sequence, position.index)), None)
            }
            RecordedResult::Apart(result) => (None, Some((**result).clone())),
        };
        Self {
            call: (record.call.sequence, record.call.index),
            round_index: record.round_index,
            call_id: record.call_id.clone(),
            name: record.name.clone(),
            status: record.status.to_string(),
            result_in,
            result,
            error: record.error.clone(),
            started: record.started_at.map(milliseconds::of),
            finished: record.finished_at.map(milliseconds::of),
        }
    }

    fn read(self) -> Option<ToolRecord> {
        let position = |(sequence, index)| SequencePosition { sequence, index };
        let mut record =
            ToolRecord::pending(position(self.call), self.round_index, self.call_id, self.name);
        record.status = self.status.parse().ok()?;
        record.result = match (self.result_in, self.result) {
            (None, None) => RecordedResult::None,
            (Some(at), _) => RecordedResult::InMessage(position(at)),
            (None, Some(result)) => RecordedResult::Apart(Box::new(result)),
        };
        record.error = self.error;
        record.started_at = time(self.started)?;
        record.finished_at = time(self.finished)?;
        Some(record)
    }
}

impl Open {
    fn new(open: &OpenRun) -> Self {
        Self {
            run: open.run.to_bytes(),
            attempt: open.lease.attempt,
            holder: open.lease.holder,
            opened: milliseconds::of(open.opened_at),
            renewed: milliseconds::of(open.lease.renewed_at),
            until: open.lease.until.map(milliseconds::of),
            visible: open.visible,
            changes_service_id: open.service_id.is_some(),
            service_id: match &open.service_id {
                Some(ServiceIdChange::Set(id)) => Some(id.clone()),
                Some(ServiceIdChange::Clear) | None => None,
            },
            partial_text: open.partial_text.clone(),
        }
    }

    fn read(self) -> Option<OpenRun> {
        let lease = Lease {
            attempt: self.attempt,
            holder: self.holder,
            renewed_at: milliseconds::time(self.renewed)?,
            until: time(self.until)?,
        };
        let mut open = OpenRun::new(RunId::from_bytes(self.run), lease, self.visible);
        open.opened_at = milliseconds::time(self.opened)?;
        open.service_id = self
            .changes_service_id
            .then(|| self.service_id.map_or(ServiceIdChange::Clear, ServiceIdChange::Set));
        open.partial_text = self.partial_text;
        Some(open)
    }
}

/// Converts an optional time. Returns `None` if the time is out of range.
fn time(stored: Option<i64>) -> Option<Option<SystemTime>> {
    match stored {
        None => Some(None),
        Some(stored) => milliseconds::time(stored).map(Some),
    }
}
